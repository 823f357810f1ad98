"""The contract with the agents and clients in the field, written down a second time by hand.

The tables hold facts that may only grow: names, numbers and types. A difference here is a
difference on the wire. Notation: ``name=number:type``; ``[T]`` is repeated, ``{V}`` a map from
string to V, ``*T`` an arm of the message's one oneof, ``T?`` a scalar that may be absent, ``T!`` an
enum; no type means string.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import grpc
import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from persys_proto.agent.v1 import agent_pb2, agent_pb2_grpc
from persys_proto.control.v1 import control_pb2, control_pb2_grpc

FIRST_OWN_NUMBER = 100

CONTROL_MESSAGES = """
RegisterNodeRequest: node_id=1 capabilities=2:NodeCapabilities labels=3:{string} agent_version=4 \
    grpc_endpoint=5 cluster_id=6 timestamp=7:Timestamp
NodeCapabilities: cpu_total_millicores=1:int64 memory_total_mb=2:int64 \
    storage_pools=3:[StoragePool] supported_workload_types=4:[string] \
    supported_storage_drivers=5:[string]
StoragePool: name=1 type=2 total_gb=3:int64
RegisterNodeResponse: accepted=1:bool reason=2 heartbeat_interval_seconds=3:int32 \
    lease_expires_at=4:Timestamp
HeartbeatRequest: node_id=1 usage=2:NodeUsage workload_statuses=3:[WorkloadStatus] \
    timestamp=4:Timestamp workload_usage=5:[WorkloadUsageSnapshot]
NodeUsage: cpu_allocated_millicores=1:int64 cpu_used_millicores=2:int64 \
    memory_allocated_mb=3:int64 memory_used_mb=4:int64 disk_allocated_gb=5:int64 \
    disk_used_gb=6:int64
HeartbeatResponse: acknowledged=1:bool drain_node=2:bool lease_expires_at=3:Timestamp
WorkloadStatus: workload_id=1 state=2 failure_reason=3:FailureReason! message=4 \
    last_transition=5:Timestamp reason=6:ReasonDetail usage=7:WorkloadUsageSnapshot
WorkloadUsageSnapshot: workload_id=1 type=2 cpu_percent=3:double memory_bytes=4:int64 \
    disk_read_bytes=5:int64 disk_write_bytes=6:int64 net_rx_bytes=7:int64 net_tx_bytes=8:int64 \
    collected_at=9:Timestamp source=10
ReasonDetail: code=1 message=2 last_transition=3:Timestamp next_retry_at=4:Timestamp \
    retryable=5:bool

ApplyWorkloadRequest: workload_id=1 spec=2:WorkloadSpec revision_id=10 desired_state=11
ApplyWorkloadResponse: success=1:bool failure_reason=2:FailureReason! error_message=3
DeleteWorkloadRequest: workload_id=1
DeleteWorkloadResponse: success=1:bool error_message=2
RetryWorkloadRequest: workload_id=1
RetryWorkloadResponse: accepted=1:bool
WorkloadSpec: type=1 resources=2:ResourceRequirements container=10:*ContainerSpec \
    compose=11:*ComposeSpec vm=12:*VMSpec metadata=20:{string}
ResourceRequirements: cpu_millicores=1:int64 memory_mb=2:int64 disk_gb=3:int64
ContainerSpec: image=1 command=2:[string] env=3:{string} volumes=4:[VolumeMount] ports=5:[Port] \
    restart_policy=6 privileged=7:bool managed_volumes=8:[ManagedVolumeSpec]
VolumeMount: host_path=1 container_path=2 read_only=3:bool
Port: host_port=1:int32 container_port=2:int32 protocol=3
ComposeSpec: source_type=1 git_repo=2 git_ref=3 inline_yaml=4 env=5:{string}
VMSpec: vcpus=1:int32 memory_mb=2:int64 disks=3:[DiskConfig] networks=4:[NetworkConfig] \
    cloud_init=5:CloudInitConfig os_image=6 managed_volumes=7:[ManagedVolumeSpec]
DiskConfig: pool_name=1 size_gb=2:int64 mount_point=3
NetworkConfig: bridge=1 dhcp=2:bool static_ip=3
CloudInitConfig: user_data=1 meta_data=2 network_config=3 vendor_data=4
ManagedVolumeSpec: name=1 driver=2 size_gb=3:int64 access_mode=4 fs_type=5 mount_path=6 \
    read_only=7:bool retain_policy=8

AutomationSuggestion: suggestion_id=1 policy_id=2 policy_name=3 target_workload=4 \
    action_type=5:AutomationActionType! desired_state=6 desired_replicas=7:int32 \
    replica_delta=8:int32 reason=9 suggested_at=10:Timestamp
SubmitAutomationSuggestionRequest: suggestion=1:AutomationSuggestion
SubmitAutomationSuggestionResponse: accepted=1:bool decision=2 reason=3 applied_action=4 \
    decided_at=5:Timestamp

ListNodesRequest: status=1
GetNodeRequest: node_id=1
ListNodesResponse: nodes=1:[NodeView]
GetNodeResponse: node=1:NodeView
NodeView: node_id=1 status=2 status_reason=3 status_updated_by=4 status_updated_at=5:Timestamp \
    last_heartbeat=6:Timestamp grpc_endpoint=7 total_cpu_cores=8:double \
    available_cpu_cores=9:double total_memory_mb=10:int64 available_memory_mb=11:int64 \
    supported_workload_types=12:[string] labels=13:{string} taints=14:[NodeTaint]
ListWorkloadsRequest: node_id=1 status=2
GetWorkloadRequest: workload_id=1
ListWorkloadsResponse: workloads=1:[WorkloadView]
GetWorkloadResponse: workload=1:WorkloadView
WorkloadView: workload_id=1 type=2 desired_state=3 status=4 assigned_node_id=5 revision_id=6 \
    retry_attempts=7:int32 retry_max_attempts=8:int32 retry_next_at=9:Timestamp \
    failure_reason=10 last_updated=11:Timestamp reason=12:ReasonDetail \
    usage=13:WorkloadUsageSnapshot created_at=14:Timestamp
GetClusterSummaryRequest:
GetClusterSummaryResponse: total_nodes=1:int32 ready_nodes=2:int32 not_ready_nodes=3:int32 \
    total_workloads=4:int32 running_workloads=5:int32 pending_workloads=6:int32 \
    failed_workloads=7:int32 deleted_workloads=8:int32 generated_at=9:Timestamp

ControlMessage: register=1:*RegisterNodeRequest heartbeat=2:*HeartbeatRequest \
    apply=3:*ApplyWorkloadRequest delete=4:*DeleteWorkloadRequest

DrainNodeRequest: node_id=1 reason=2
DrainNodeResponse: accepted=1:bool message=2 relocated_workloads=3:int32 node=4:NodeView
UndrainNodeRequest: node_id=1 reason=2
UndrainNodeResponse: accepted=1:bool message=2 node=3:NodeView
NodeTaint: key=1 value=2 effect=3
TaintNodeRequest: node_id=1 taint=2:NodeTaint
TaintNodeResponse: accepted=1:bool message=2 node=3:NodeView
UntaintNodeRequest: node_id=1 key=2 effect=3
UntaintNodeResponse: accepted=1:bool message=2 node=3:NodeView
SetNodeLabelRequest: node_id=1 key=2 value=3
SetNodeLabelResponse: accepted=1:bool message=2 node=3:NodeView
DeleteNodeLabelRequest: node_id=1 key=2
DeleteNodeLabelResponse: accepted=1:bool message=2 node=3:NodeView

SchedulerEventView: id=1 type=2 workload_id=3 node_id=4 reason=5 timestamp=6:Timestamp \
    details=7:{string}
ListEventsRequest: limit=1:int64 type=2 workload_id=3 node_id=4
ListEventsResponse: events=1:[SchedulerEventView]
WatchEventsRequest: type=1 workload_id=2 node_id=3

CreateDiskRequest: name=1 driver=2 size_gb=3:int64 fs_type=4 access_mode=5 retain_policy=6 \
    node_id=7 mount_path=8
CreateDiskResponse: disk=1:DiskView
ListDisksRequest:
ListDisksResponse: disks=1:[DiskView]
GetDiskRequest: disk_id=1
GetDiskResponse: disk=1:DiskView
DeleteDiskRequest: disk_id=1 force=2:bool
DeleteDiskResponse: success=1:bool error_message=2
DiskView: id=1 name=2 driver=3 size_gb=4:int64 fs_type=5 access_mode=6 retain_policy=7 phase=8 \
    last_error=9 node_id=10 device=11 standalone=12:bool mount_path=13 \
    workload_refs=14:[string] attached_nodes=15:[string] created_at=16:Timestamp \
    updated_at=17:Timestamp

CreateBucketRequest: name=1 region=2 versioning=3:bool
CreateBucketResponse: bucket=1:BucketView access=2:BucketAccess
ListBucketsRequest:
ListBucketsResponse: buckets=1:[BucketView]
GetBucketRequest: bucket_id=1
GetBucketResponse: bucket=1:BucketView
DeleteBucketRequest: bucket_id=1 force=2:bool
DeleteBucketResponse: success=1:bool error_message=2
GetBucketAccessRequest: bucket_id=1
GetBucketAccessResponse: access=1:BucketAccess
ListBucketObjectsRequest: bucket_id=1 prefix=2 continuation_token=3 max_keys=4:int32
ListBucketObjectsResponse: objects=1:[ObjectInfo] next_continuation_token=2 is_truncated=3:bool \
    prefix=4
BucketView: id=1 name=2 region=3 owner=4 endpoint=5 versioning=6:bool object_count=7:int64 \
    size_bytes=8:int64 phase=9 last_error=10 created_at=11:Timestamp updated_at=12:Timestamp
BucketAccess: endpoint=1 region=2 bucket=3 access_key=4 secret_key=5 vault_path=6 s3_url=7
ObjectInfo: key=1 size_bytes=2:int64 etag=3 last_modified=4 storage_class=5
"""

AGENT_MESSAGES = """
ApplyWorkloadRequest: id=1 type=2:WorkloadType! revision_id=3 desired_state=4:DesiredState! \
    spec=5:WorkloadSpec
ApplyWorkloadResponse: applied=1:bool skipped=2:bool message=3 status=4:WorkloadStatus
DeleteWorkloadRequest: id=1
DeleteWorkloadResponse: success=1:bool message=2
GetWorkloadStatusRequest: id=1
GetWorkloadStatusResponse: status=1:WorkloadStatus
ListWorkloadsRequest: type=1:WorkloadType!
ListWorkloadsResponse: workloads=1:[WorkloadStatus]
HealthCheckRequest:
HealthCheckResponse: healthy=1:bool version=2 runtime_status=3:{string} \
    memory_utilization=4:double cpu_utilization=5:double disk_utilization=6:double
ListActionsRequest: workload_id=1 action_type=2 status=3 limit=4:int32 newest_first=5:bool
ListActionsResponse: actions=1:[AgentAction]
AgentAction: task_id=1 workload_id=2 action_type=3 status=4 error=5 created_at=6:int64 \
    started_at=7:int64 ended_at=8:int64

WorkloadSpec: container=1:*ContainerSpec compose=2:*ComposeSpec vm=3:*VMSpec
ContainerSpec: image=1 command=2:[string] args=3:[string] env=4:{string} \
    volumes=5:[VolumeMount] ports=6:[PortMapping] resources=7:ResourceLimits \
    restart_policy=8:RestartPolicy labels=9:{string} managed_volumes=10:[ManagedVolumeSpec]
ResourceLimits: cpu_shares=1:int64 memory_bytes=2:int64 memory_swap_bytes=3:int64
RestartPolicy: policy=1 max_retry_count=2:int32
PortMapping: host_port=1:int32 container_port=2:int32 protocol=3
VolumeMount: host_path=1 container_path=2 read_only=3:bool
ComposeSpec: project_name=1 compose_yaml=2 env=3:{string}
VMSpec: name=1 vcpus=2:int32 memory_mb=3:int64 disks=4:[DiskConfig] networks=5:[NetworkConfig] \
    cloud_init=6 metadata=7:{string} cloud_init_config=8:CloudInitConfig \
    managed_volumes=9:[ManagedVolumeSpec] os_image=10 disk_gb=11:int64 runtime=12
CloudInitConfig: user_data=1 meta_data=2 network_config=3 vendor_data=4 username=5 \
    ssh_public_key=6 password=7
ManagedVolumeSpec: name=1 driver=2 size_gb=3:int64 access_mode=4 fs_type=5 mount_path=6 \
    read_only=7:bool retain_policy=8
DiskConfig: path=1 device=2 format=3 size_gb=4:int64 type=5 boot=6:bool backing_file=7 storage=8
NetworkConfig: network=1 mac_address=2 ip_address=3 host_dev_name=4 model=5 bridge=6
WorkloadStatus: id=1 type=2:WorkloadType! revision_id=3 desired_state=4:DesiredState! \
    actual_state=5:ActualState! message=6 created_at=7:int64 updated_at=8:int64 \
    metadata=9:{string} usage=10:WorkloadUsageSnapshot
WorkloadUsageSnapshot: workload_id=1 type=2:WorkloadType! cpu_percent=3:double \
    memory_bytes=4:int64 disk_read_bytes=5:int64 disk_write_bytes=6:int64 net_rx_bytes=7:int64 \
    net_tx_bytes=8:int64 collected_at=9:int64 source=10
"""

# What we added to messages of the contract. Once released these bind us like the rest.
OUR_CONTROL_FIELDS = """
RegisterNodeRequest: stop_after_seconds=100:int64 boot_id=101
NodeCapabilities: reserved=100:[ResourceAmount]
HeartbeatRequest: boot_id=100 sequence=101:uint64
HeartbeatResponse: lease_confirmed_seconds=100:double?
WorkloadStatus: revision_id=100
ApplyWorkloadRequest: expected_revision=100:int64?
ApplyWorkloadResponse: outcome=100 revision_id=101 explanation=102:Explanation
DeleteWorkloadRequest: force=100:bool
DeleteWorkloadResponse: outcome=100
RetryWorkloadRequest: discard_local=100:bool
RetryWorkloadResponse: message=100
ListNodesRequest: min_revision=100:int64
GetNodeRequest: min_revision=100:int64
ListWorkloadsRequest: min_revision=100:int64
GetWorkloadRequest: min_revision=100:int64
GetClusterSummaryRequest: min_revision=100:int64
ListEventsRequest: min_revision=100:int64
ListNodesResponse: store_revision=100:int64 stale=101:bool age_seconds=102:double
GetNodeResponse: store_revision=100:int64 stale=101:bool age_seconds=102:double
ListWorkloadsResponse: store_revision=100:int64 stale=101:bool age_seconds=102:double
GetWorkloadResponse: store_revision=100:int64 stale=101:bool age_seconds=102:double
ListEventsResponse: store_revision=100:int64 stale=101:bool age_seconds=102:double
GetClusterSummaryResponse: store_revision=100:int64 stale=101:bool age_seconds=102:double \
    mode=103 mode_reason=104 instance_id=105 role=106 leader_id=107 \
    workloads_by_status=108:{int32} draining_nodes=109:int32 \
    ha_mode=110 shard=111 replicas=112:[ReplicaView] owned_nodes=113:int32 \
    unowned_nodes=114:int32 doubly_owned_nodes=115:int32 foreign_leader=116
NodeView: cordoned=100:bool draining=101:bool intent_reason=102 allocated=103:[ResourceAmount] \
    capacity=104:[ResourceAmount] overcommitted=105:bool reserved=106:[ResourceAmount] \
    fenced=107:bool fence_reason=108 fenced_at=109:Timestamp \
    usage=110:NodeUsage usage_reported_at=111:Timestamp stop_after_seconds=112:int64
WorkloadView: client_revision_id=100 requested=101:[ResourceAmount] explanation=102:Explanation
DrainNodeRequest: deadline_seconds=100:int64 force=101:bool
DrainNodeResponse: replaced=100
WatchEventsRequest: after_id=100
"""

OUR_AGENT_FIELDS = """
ApplyWorkloadRequest: resources=100:RequestedResources metadata=101:{string}
DeleteWorkloadRequest: delete_volumes=100:bool
ContainerSpec: privileged=100:bool
"""

OUR_AGENT_MESSAGES = """
RequestedResources: cpu_millicores=1:int64 memory_mb=2:int64 disk_gb=3:int64
StreamLogsRequest: id=1 tail=2:int32 follow=3:bool
LogLine: text=1 stream=2 source=3 at_ms=4:int64
ExecRequest: start=1:*ExecStart input=2:*bytes end_of_input=3:*bool
ExecStart: id=1 command=2:[string] tty=3:bool
ExecResponse: stdout=1:*bytes stderr=2:*bytes exit_code=3:*int32
"""

# Messages that only our own RPCs and fields use: numbered from 1.
OUR_CONTROL_MESSAGES = """
ListDriftsRequest: node_id=1 min_revision=100:int64
ListDriftsResponse: drifts=1:[DriftView] store_revision=100:int64 stale=101:bool \
    age_seconds=102:double
DriftView: node_id=1 workload_id=2 type=3 detected_at=4:Timestamp scheduler_status=5 \
    agent_status=6 action=7 note=8
ResourceAmount: name=1 amount=2:int64 unit=3
Explanation: verdict=1 summary=2 node_id=3 score=4:double score_parts=5:{double} \
    since=6:Timestamp next_try_at=7:Timestamp next_step=8 nodes_considered=9:int32 \
    nodes_feasible=10:int32 reasons=11:[ReasonCount] candidates=12:[Candidate] \
    store_revision=13:int64
ReasonCount: code=1 nodes=2:int32 message=3 unit=4 asked=5:int64 free_max=6:int64 \
    examples=7:[NodeRejection]
NodeRejection: node_id=1 code=2 asked=3:int64 free=4:int64 unit=5 detail=6
Candidate: node_id=1 score=2:double parts=3:{double}
ExplainWorkloadRequest: workload_id=1 max_examples=2:int32 min_revision=3:int64
ExplainWorkloadResponse: explanation=1:Explanation stale=2:bool age_seconds=3:double
PlanWorkloadRequest: apply=1:ApplyWorkloadRequest max_examples=2:int32 min_revision=3:int64
PlanWorkloadResponse: outcome=1 revision_id=2 explanation=3:Explanation \
    requested=4:[ResourceAmount] stale=5:bool age_seconds=6:double expected_revision=7:int64 \
    node_id=8 changes=9:[FieldChange] notes=10:[string]
FieldChange: field=1 old=2 new=3
CordonNodeRequest: node_id=1 reason=2
CordonNodeResponse: accepted=1:bool message=2 node=3:NodeView
UncordonNodeRequest: node_id=1 reason=2
UncordonNodeResponse: accepted=1:bool message=2 node=3:NodeView
GetDrainProgressRequest: node_id=1
GetDrainProgressResponse: moved=1:int32 remaining=2:int32 moving=3:int32 \
    blocked=4:[DrainBlocker] deadline_at=5:Timestamp force=6:bool stopped=7:int32 \
    owed_workload_ids=8:[string]
DrainBlocker: workload_id=1 code=2 reason=3
ReplicaView: instance_id=1 address=2 version=3 ha_mode=4 shard=5 registered_at=6:Timestamp
RemoveNodeRequest: node_id=1 force=2:bool reason=3
RemoveNodeResponse: accepted=1:bool message=2 workload_ids=3:[string]
FenceNodeRequest: node_id=1 reason=2
FenceNodeResponse: accepted=1:bool message=2 node=3:NodeView volume_ids=4:[string]
ImportFromAgentsRequest: dry_run=1:bool node_ids=2:[string] reason=3
ImportFromAgentsResponse: accepted=1:bool message=2 dry_run=3:bool \
    workloads=4:[ImportedWorkload] nodes_listed=5:int32 unreachable_node_ids=6:[string] \
    mode=7
ImportedWorkload: workload_id=1 node_id=2 type=3 revision_id=4 decision=5 detail=6
AcknowledgeEmptyRequest: reason=1
AcknowledgeEmptyResponse: accepted=1:bool message=2 mode=3
ListVolumesRequest: node_id=1 workload_id=2 phase=3 min_revision=4:int64
ListVolumesResponse: volumes=1:[VolumeView] store_revision=2:int64 stale=3:bool \
    age_seconds=4:double
VolumeView: disk=1:DiskView attachments=2:[VolumeAttachmentView] held_reason=3
VolumeAttachmentView: workload_id=1 node_id=2 mount_path=3 read_only=4:bool phase=5 \
    last_error=6 last_transition=7:Timestamp
ReleaseVolumeRequest: volume_id=1 reason=2 force=3:bool
ReleaseVolumeResponse: accepted=1:bool message=2 volume=3:VolumeView
"""

CONTROL_ENUMS = """
FailureReason: FAILURE_REASON_UNSPECIFIED=0 IMAGE_PULL_FAILED=1 IMAGE_NOT_FOUND=2 \
    INSUFFICIENT_RESOURCES=3 INVALID_SPEC=4 RUNTIME_ERROR=5 NETWORK_ERROR=6 STORAGE_ERROR=7 \
    VM_BOOT_FAILED=8
AutomationActionType: AUTOMATION_ACTION_TYPE_UNSPECIFIED=0 \
    AUTOMATION_ACTION_SET_DESIRED_STATE=1 AUTOMATION_ACTION_RETRY_WORKLOAD=2 \
    AUTOMATION_ACTION_DELETE_WORKLOAD=3 AUTOMATION_ACTION_SCALE_REPLICAS=4
"""

AGENT_ENUMS = """
WorkloadType: WORKLOAD_TYPE_UNSPECIFIED=0 WORKLOAD_TYPE_CONTAINER=1 WORKLOAD_TYPE_COMPOSE=2 \
    WORKLOAD_TYPE_VM=3 WORKLOAD_TYPE_MICROVM=4
DesiredState: DESIRED_STATE_UNSPECIFIED=0 DESIRED_STATE_RUNNING=1 DESIRED_STATE_STOPPED=2
ActualState: ACTUAL_STATE_UNSPECIFIED=0 ACTUAL_STATE_PENDING=1 ACTUAL_STATE_RUNNING=2 \
    ACTUAL_STATE_STOPPED=3 ACTUAL_STATE_FAILED=4 ACTUAL_STATE_UNKNOWN=5
"""

# Each call takes <Name>Request and answers <Name>Response, but for the streaming ones below.
CONTROL_CALLS = """
RegisterNode Heartbeat ApplyWorkload DeleteWorkload RetryWorkload
DrainNode UndrainNode TaintNode UntaintNode SetNodeLabel DeleteNodeLabel
SubmitAutomationSuggestion ListNodes GetNode ListWorkloads GetWorkload GetClusterSummary
ListEvents WatchEvents ControlStream
CreateDisk ListDisks GetDisk DeleteDisk
CreateBucket ListBuckets GetBucket DeleteBucket GetBucketAccess ListBucketObjects
"""
OUR_CONTROL_CALLS = """
ExplainWorkload PlanWorkload CordonNode UncordonNode RemoveNode FenceNode
ImportFromAgents AcknowledgeEmpty ListVolumes ReleaseVolume GetDrainProgress ListDrifts
"""
AGENT_CALLS = "ApplyWorkload DeleteWorkload GetWorkloadStatus ListWorkloads HealthCheck ListActions"
OUR_AGENT_CALLS = "StreamLogs Exec"
STREAMING_CALLS = {
    "WatchEvents": "WatchEventsRequest -> stream SchedulerEventView",
    "ControlStream": "stream ControlMessage -> stream ControlMessage",
    "StreamLogs": "StreamLogsRequest -> stream LogLine",
    "Exec": "stream ExecRequest -> stream ExecResponse",
}

SCALARS = {
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_INT32: "int32",
    FieldDescriptorProto.TYPE_INT64: "int64",
    FieldDescriptorProto.TYPE_UINT64: "uint64",
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
}

Fields = dict[str, str]


def table(text: str) -> dict[str, Fields]:
    """Reads ``Message: name=number:type ...`` lines into message -> name -> ``number:type``."""
    rows = (line.partition(":") for line in text.splitlines() if line)
    return {message: dict(map(entry, fields.split())) for message, _, fields in rows}


def entry(word: str) -> tuple[str, str]:
    """``name=number`` or ``name=number:type`` as (name, ``number:type``)."""
    name, _, fact = word.partition("=")
    return name, fact if ":" in fact else f"{fact}:string"


def enum_table(text: str) -> dict[str, dict[str, int]]:
    """Reads ``Enum: NAME=number ...`` lines."""
    rows = (line.partition(":") for line in text.splitlines() if line)
    return {
        enum: {name: int(number) for name, number in (word.split("=") for word in values.split())}
        for enum, _, values in rows
    }


class Contract(NamedTuple):
    """One proto file as compiled, beside the tables that speak about it."""

    package: str
    service: str
    compiled: FileDescriptorProto
    theirs: dict[str, Fields]
    our_fields: dict[str, Fields]
    our_messages: dict[str, Fields]
    enums: dict[str, dict[str, int]]
    calls: list[str]


def load(descriptor: FileDescriptor) -> FileDescriptorProto:
    """The compiled file in the form of plain messages, alike on every protobuf runtime."""
    proto = FileDescriptorProto()
    descriptor.CopyToProto(proto)
    return proto


CONTROL = Contract(
    package="persys.control.v1",
    service="AgentControl",
    compiled=load(control_pb2.DESCRIPTOR),
    theirs=table(CONTROL_MESSAGES),
    our_fields=table(OUR_CONTROL_FIELDS),
    our_messages=table(OUR_CONTROL_MESSAGES),
    enums=enum_table(CONTROL_ENUMS),
    calls=(CONTROL_CALLS + OUR_CONTROL_CALLS).split(),
)
AGENT = Contract(
    package="persys.agent.v1",
    service="AgentService",
    compiled=load(agent_pb2.DESCRIPTOR),
    theirs=table(AGENT_MESSAGES),
    our_fields=table(OUR_AGENT_FIELDS),
    our_messages=table(OUR_AGENT_MESSAGES),
    enums=enum_table(AGENT_ENUMS),
    calls=[*AGENT_CALLS.split(), *OUR_AGENT_CALLS.split()],
)


def field_fact(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    """One compiled field as ``number:type``, in the notation of the tables."""
    return f"{field.number}:{type_fact(message, field)}"


def type_fact(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    """The type half of a field's fact."""
    name = SCALARS.get(field.type) or field.type_name.rpartition(".")[2]
    if field.type == FieldDescriptorProto.TYPE_ENUM:
        name += "!"
    if field.proto3_optional:
        return f"{name}?"
    if field.HasField("oneof_index"):
        return f"*{name}"
    if field.label != FieldDescriptorProto.LABEL_REPEATED:
        return name
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    if name not in entries:
        return f"[{name}]"
    key, value = entries[name].field
    assert key.type == FieldDescriptorProto.TYPE_STRING
    return f"{{{type_fact(entries[name], value)}}}"


def fields_of(message: DescriptorProto) -> Fields:
    """Every compiled field of a message: name -> ``number:type``."""
    return {field.name: field_fact(message, field) for field in message.field}


def compiled_messages(contract: Contract) -> dict[str, DescriptorProto]:
    """The compiled messages of a file by name."""
    return {message.name: message for message in contract.compiled.message_type}


def number_of(fact: str) -> int:
    """The number half of a field's fact."""
    return int(fact.partition(":")[0])


def cases(which: str) -> list[object]:
    """One pytest case (contract, message name) for each row of a table."""
    return [
        pytest.param(contract, message, id=f"{contract.package}.{message}")
        for contract in (CONTROL, AGENT)
        for message in getattr(contract, which)
    ]


both_contracts = pytest.mark.parametrize("contract", [CONTROL, AGENT], ids=lambda c: c.package)


@pytest.mark.parametrize(("contract", "name"), cases("theirs"))
def test_a_message_of_the_contract_has_exactly_its_fields_and_ours(
    contract: Contract, name: str
) -> None:
    """Each message holds the fields in the field today with number and type, and ours beside."""
    expected = contract.theirs[name] | contract.our_fields.get(name, {})
    assert fields_of(compiled_messages(contract)[name]) == expected


@pytest.mark.parametrize(("contract", "name"), cases("theirs"))
def test_our_fields_in_messages_of_the_contract_begin_at_100(contract: Contract, name: str) -> None:
    """Whatever the contract does not know in its own messages has a number from 100 up."""
    present = fields_of(compiled_messages(contract)[name])
    ours = {field: fact for field, fact in present.items() if field not in contract.theirs[name]}
    assert {field for field, fact in ours.items() if number_of(fact) < FIRST_OWN_NUMBER} == set()


@both_contracts
def test_no_field_of_ours_takes_the_name_of_a_contract_field(contract: Contract) -> None:
    """An addition never shadows a field that peers already speak."""
    for name, fields in contract.our_fields.items():
        assert fields.keys().isdisjoint(contract.theirs[name])


@pytest.mark.parametrize(("contract", "name"), cases("our_messages"))
def test_a_message_of_ours_keeps_its_numbers(contract: Contract, name: str) -> None:
    """Messages of our own RPCs are fixed from their first release on."""
    assert fields_of(compiled_messages(contract)[name]) == contract.our_messages[name]


@both_contracts
def test_every_message_is_in_a_table(contract: Contract) -> None:
    """No message enters or leaves the contract without a row here."""
    assert compiled_messages(contract).keys() == contract.theirs.keys() | contract.our_messages
    assert contract.our_fields.keys() <= contract.theirs.keys()


@both_contracts
def test_enums_keep_their_names_and_numbers(contract: Contract) -> None:
    """The enums hold exactly the known values under the known names."""
    compiled = {
        enum.name: {value.name: value.number for value in enum.value}
        for enum in contract.compiled.enum_type
    }
    assert compiled == contract.enums


def signature(name: str) -> str:
    """What a call takes and answers, in proto's words."""
    return STREAMING_CALLS.get(name, f"{name}Request -> {name}Response")


@both_contracts
def test_the_service_offers_every_call_in_order(contract: Contract) -> None:
    """The service has all calls, in the reference's order, ours last, with the right types."""
    [service] = contract.compiled.service
    compiled = [
        (
            method.name,
            f"{'stream ' * method.client_streaming}{method.input_type.rpartition('.')[2]} -> "
            f"{'stream ' * method.server_streaming}{method.output_type.rpartition('.')[2]}",
        )
        for method in service.method
    ]
    assert compiled == [(name, signature(name)) for name in contract.calls]


@both_contracts
def test_names_on_the_wire_do_not_depend_on_where_the_modules_live(contract: Contract) -> None:
    """Package, service and syntax are those of the peers; only file names are ours."""
    [service] = contract.compiled.service
    assert contract.compiled.package == contract.package
    assert service.name == contract.service
    assert contract.compiled.syntax == "proto3"


class PathRecorder:
    """Stands where a stub expects its channel and notes the method paths it asks for."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def note(self, path: str, **_: object) -> None:
        """Takes the place of every way to make a call."""
        self.paths.append(path)

    unary_unary = unary_stream = stream_unary = stream_stream = note


@pytest.mark.parametrize(
    ("contract", "stub"),
    [(CONTROL, control_pb2_grpc.AgentControlStub), (AGENT, agent_pb2_grpc.AgentServiceStub)],
    ids=["control", "agent"],
)
def test_stubs_call_the_paths_that_peers_serve(
    contract: Contract, stub: Callable[[grpc.Channel], object]
) -> None:
    """A call travels as /package.Service/Call."""
    recorder = PathRecorder()
    stub(cast(grpc.Channel, recorder))
    prefix = f"/{contract.package}.{contract.service}"
    assert recorder.paths == [f"{prefix}/{name}" for name in contract.calls]
