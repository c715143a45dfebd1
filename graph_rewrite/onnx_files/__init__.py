"""TODO graph_rewrite/onnx_files"""
