"""Peers: the tools that a user would pick instead of RewriteGym, each as a contestant of a judgement.

`PEERS` maps a name to a function `(model, folder, threads) -> Contestant`: `model` is the original's ONNX file with
fixed shapes, `folder` a working folder for what is made out of it, `threads` the threads per inference. Optimisers of
ONNX files write a file, which then runs in ONNX Runtime with all of its optimisers. Other runtimes open the original.

| peer | what runs |
|---|---|
| `ort-none`, `ort-basic`, `ort-extended`, `ort-all` | ONNX Runtime at its four optimisation levels |
| `ort-transformers` | ONNX Runtime's optimiser of transformers (`onnxruntime.transformers.optimizer`) |
| `onnxsim`, `onnxslim`, `onnxscript` | the optimisers of these names with their defaults |
| `openvino` | OpenVINO on the CPU, in float32 |
| `pytorch`, `inductor` | the zoo's own PyTorch module, eager and compiled by `torch.compile`; models of the zoo only |
| `cuda`, `tensorrt` | ONNX Runtime's providers for NVIDIA devices |
| `cuda-graph` | the CUDA provider with `enable_cuda_graph` |

A peer that cannot take part raises `MissingPeer` with the reason; one that crashes, hangs or fails as it prepares the
model raises `FailedPeer`. Optional packages come with `pip install 'rewritegym[bench]'`.
"""

from benchmarks.peers.catalogue import PEERS, Prepare
from benchmarks.peers.errors import FailedPeer, MissingPeer

__all__ = ["PEERS", "FailedPeer", "MissingPeer", "Prepare"]
