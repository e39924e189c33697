"""Run inside an image: does its libibverbs open its eRDMA provider, and does its NCCL start?

Without an RDMA device libibverbs never gets as far as its providers, so the provider is opened here as libibverbs would
open it: with every symbol resolved at once, its private ones against the libibverbs that is loaded.
"""
import ctypes
import glob
import os
import subprocess
import sys

ran = subprocess.run(["ibv_devices"], env={**os.environ, "IBV_SHOW_WARNINGS": "1"}, capture_output=True, text=True)
said = ran.stdout + ran.stderr
if "driver" in said or "Warning" in said:
    sys.exit(f"ibv_devices complains: {said}")
print("ibv_devices with IBV_SHOW_WARNINGS=1 prints no provider error; it says:", " ".join(said.split()))

ctypes.CDLL("libibverbs.so.1", mode=os.RTLD_NOW | os.RTLD_GLOBAL)
providers = glob.glob("/usr/lib/*/libibverbs/liberdma-rdmav*.so")
if not providers:
    sys.exit("there is no eRDMA provider")
for path in providers:
    ctypes.CDLL(path, mode=os.RTLD_NOW)
    print("opened with every symbol resolved:", path)

nccl = ctypes.CDLL("libnccl.so.2")
version = ctypes.c_int()
if nccl.ncclGetVersion(ctypes.byref(version)) != 0:
    sys.exit("ncclGetVersion failed")
print("ncclGetVersion() answers", version.value)
