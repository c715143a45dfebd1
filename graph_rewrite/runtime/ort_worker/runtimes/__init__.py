"""Runtimes: the libraries that run models, one file each, behind the interface `protocol.ModelRuntime`."""
