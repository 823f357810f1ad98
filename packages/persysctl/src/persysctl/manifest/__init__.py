"""Workload manifests: files of people turned into requests, strictly (docs/manifests.md)."""

from __future__ import annotations

from persysctl.manifest.load import LoadedManifest, load_files
from persysctl.manifest.problems import ManifestError, Origin, Problem

__all__ = ["LoadedManifest", "ManifestError", "Origin", "Problem", "load_files"]
