"""A stand-in for Firecracker: its documented API over a unix socket, and no virtual machine.

Its real binary is not to be had here. What this holds callers to is what Firecracker's swagger file
says: the fields of each request (none missing, none unknown), what may be called before and after
``InstanceStart``, and what has to exist on the host by then. The guest does what the first line of
its root disk says: ``lasting`` (shuts down at Ctrl-Alt-Del), ``deaf`` (does not), ``ending N``
(ends with that code). It prints the words of its seed that begin with ``marker-``.

Run as a program it needs the standard library alone, so that it starts within 0.1 s.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socketserver
import stat
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

__all__ = ["VERSION", "install"]

VERSION = "Firecracker v1.7.0"
_INSTANCE_ID = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_DEVICE_ID = re.compile(r"[A-Za-z0-9_]{1,64}\Z")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")
_MARKER = re.compile(rb"marker-[\w-]+")
_ENDING_SECONDS = 0.3
_MAX_VCPUS = 32

# Resource: the fields it must have, and those it may have, with their types.
_FIELDS: dict[str, tuple[dict[str, type], dict[str, type]]] = {
    "machine-config": (
        {"vcpu_count": int, "mem_size_mib": int},
        {"smt": bool, "cpu_template": str, "track_dirty_pages": bool, "huge_pages": str},
    ),
    "boot-source": ({"kernel_image_path": str}, {"boot_args": str, "initrd_path": str}),
    "drives": (
        {"drive_id": str, "is_root_device": bool, "is_read_only": bool, "path_on_host": str},
        {"partuuid": str, "cache_type": str, "rate_limiter": dict, "io_engine": str},
    ),
    "network-interfaces": (
        {"iface_id": str, "host_dev_name": str},
        {"guest_mac": str, "rx_rate_limiter": dict, "tx_rate_limiter": dict, "mtu": int},
    ),
    "logger": (
        {},
        {"log_path": str, "level": str, "show_level": bool, "show_log_origin": bool, "module": str},
    ),
    "actions": ({"action_type": str}, {}),
    "vm": ({"state": str}, {}),
}
_AFTER_START = frozenset({"actions", "vm"})


def install(folder: Path) -> Path:
    """Write a program ``firecracker`` into ``folder`` that runs this file."""
    path = folder / "firecracker"
    lines = [
        f"#!{sys.executable} -IS",
        "import runpy",
        f"runpy.run_path({str(Path(__file__).resolve())!r}, run_name='__main__')",
    ]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class FaultError(Exception):
    """What is answered with status 400 and ``fault_message``."""


def _check_fields(resource: str, body: dict[str, object]) -> None:
    required, optional = _FIELDS[resource]
    for name in required:
        if name not in body:
            raise FaultError(f"missing field `{name}`")
    for name, value in body.items():
        expected = required.get(name) or optional.get(name)
        if expected is None:
            raise FaultError(f"unknown field `{name}`")
        if type(value) is not expected:
            raise FaultError(f"invalid type of field `{name}`")


def _check_file(path: object) -> None:
    if not Path(str(path)).exists():
        raise FaultError(f"No such file or directory (os error 2) {path}")


class Machine:
    """The state of one microVM."""

    def __init__(self, instance_id: str) -> None:
        self.id = instance_id
        self.state = "Not started"
        self.boot: dict[str, object] = {}
        self.drives: dict[str, dict[str, object]] = {}
        self.nics: dict[str, dict[str, object]] = {}

    def describe(self) -> dict[str, object]:
        return {
            "id": self.id,
            "state": self.state,
            "vmm_version": VERSION.rpartition("v")[2],
            "app_name": "Firecracker",
        }

    def put(self, resource: str, device: str, body: dict[str, object]) -> None:
        _check_fields(resource, body)
        if self.state != "Not started" and resource not in _AFTER_START:
            raise FaultError("The requested operation is not supported after starting the microVM.")
        handlers = {
            "machine-config": self._size,
            "boot-source": self._boot,
            "drives": lambda b: self._device(self.drives, "drive_id", device, b),
            "network-interfaces": lambda b: self._device(self.nics, "iface_id", device, b),
            "logger": lambda b: _check_file(b.get("log_path")),
            "actions": self._act,
        }
        if resource not in handlers:
            raise FaultError(f"Invalid request method and/or path: PUT {resource}.")
        handlers[resource](body)

    def patch(self, resource: str, body: dict[str, object]) -> None:
        if resource != "vm":
            raise FaultError(f"Invalid request method and/or path: PATCH {resource}.")
        _check_fields(resource, body)
        if self.state == "Not started":
            raise FaultError(
                "The requested operation is not supported before starting the microVM."
            )
        states = {"Paused": "Paused", "Resumed": "Running"}
        if body["state"] not in states:
            raise FaultError(f"unknown variant `{body['state']}`")
        self.state = states[str(body["state"])]

    def _size(self, body: dict[str, object]) -> None:
        vcpus, memory = body["vcpu_count"], body["mem_size_mib"]
        assert isinstance(vcpus, int)
        assert isinstance(memory, int)
        if not 1 <= vcpus <= _MAX_VCPUS or memory < 1:
            raise FaultError("The vCPU number is invalid! or the memory size is.")

    def _boot(self, body: dict[str, object]) -> None:
        _check_file(body["kernel_image_path"])
        if "initrd_path" in body:
            _check_file(body["initrd_path"])
        self.boot = body

    def _device(
        self, devices: dict[str, dict[str, object]], key: str, name: str, body: dict[str, object]
    ) -> None:
        if body[key] != name or not _DEVICE_ID.match(name):
            raise FaultError("The id from the path does not match the id from the body!")
        if key == "drive_id":
            _check_file(body["path_on_host"])
            roots = [each for each, drive in devices.items() if drive["is_root_device"]]
            if body["is_root_device"] and roots not in ([], [name]):
                raise FaultError("A root block device already exists!")
        elif not _MAC.match(str(body.get("guest_mac", "00:00:00:00:00:00"))):
            raise FaultError("invalid guest_mac")
        devices[name] = body

    def _act(self, body: dict[str, object]) -> None:
        match body["action_type"]:
            case "InstanceStart":
                self._start()
            case "SendCtrlAltDel":
                if self.state == "Not started":
                    raise FaultError("not supported before starting the microVM.")
                if self._program() != ["deaf"]:
                    threading.Timer(0.05, _exit, (0, "reboot: machine restart")).start()
            case "FlushMetrics":
                pass
            case other:
                raise FaultError(f"unknown variant `{other}`")

    def _start(self) -> None:
        if self.state != "Not started":
            raise FaultError("The microVM is already running.")
        if not self.boot:
            raise FaultError("Cannot start microvm without kernel configuration.")
        has_root = any(drive["is_root_device"] for drive in self.drives.values())
        if not has_root and "initrd_path" not in self.boot:
            raise FaultError("Cannot open root device.")
        self.state = "Running"
        _say(f"guest: booted with {self.boot.get('boot_args', '')}")
        if "cidata" in self.drives:
            seed = Path(str(self.drives["cidata"]["path_on_host"])).read_bytes()
            for marker in sorted(set(_MARKER.findall(seed))):
                _say(f"user-data: {marker.decode()}")
        program = self._program()
        if program[:1] == ["ending"]:
            threading.Timer(_ENDING_SECONDS, _exit, (int(program[1]), "guest: ends")).start()

    def _program(self) -> list[str]:
        for drive in self.drives.values():
            if drive["is_root_device"]:
                with Path(str(drive["path_on_host"])).open("rb") as disk:
                    return disk.readline().decode().split()
        return ["lasting"]


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # the serial console is stdout


def _exit(code: int, text: str) -> None:
    _say(text)
    os._exit(code)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, socket: Path, machine: Machine) -> None:
        self.machine = machine
        self.lock = threading.Lock()
        self.calls = socket.with_name("calls.log")
        super().__init__(str(socket), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is no error; the traceback of others is part of the console."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: stdout is the guest's."""

    def address_string(self) -> str:
        return "unix"

    def _answer(self) -> None:
        assert isinstance(self.server, Server)
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        with self.server.lock:
            try:
                status, document = self._act(self.server.machine, text)
            except FaultError as fault:
                status, document = 400, {"fault_message": str(fault)}
            if self.command != "GET":
                with self.server.calls.open("a") as calls:
                    calls.write(f"{status} {self.command} {self.path} {text}\n")
        content = json.dumps(document).encode() if document else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _act(self, machine: Machine, text: str) -> tuple[int, dict[str, object]]:
        if self.command == "GET":
            if self.path != "/":
                raise FaultError(f"Invalid request method and/or path: GET {self.path}.")
            return 200, machine.describe()
        _, resource, *device = self.path.split("/")
        if resource not in _FIELDS:
            raise FaultError(f"Invalid request method and/or path: {self.path}.")
        body = json.loads(text)
        if self.command == "PUT":
            machine.put(resource, device[0] if device else "", body)
        else:
            machine.patch(resource, body)
        return 204, {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--api-sock", type=Path)
    parser.add_argument("--id", default="anonymous-instance")
    parser.add_argument("--version", action="store_true")
    options = parser.parse_args()
    if options.version:
        _say(VERSION)
        return
    if not _INSTANCE_ID.match(options.id):
        sys.exit("invalid instance id")
    if options.api_sock.exists():
        sys.exit("the socket exists already")
    Server(options.api_sock, Machine(options.id)).serve_forever()


if __name__ == "__main__":
    main()
