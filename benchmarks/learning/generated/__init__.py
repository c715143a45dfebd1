"""Networks drawn at random from families of realistic blocks, as ONNX files: seeded, small, and of no use but to be
optimised. `benchmarks.learning.generated.catalogue` lists them."""
