"""Process that compiles what one forward would launch, for a named card, without running it: stub, body follows.

`python -P -m tritonsmith.evaluator.compile_only` reads one JSON line on stdin
{"candidate": path, "target": card key, "init_pickle": path} and writes one JSON object
{"status", "message", "kernels", "torch_ops", "torch_launches", "torch_flops", "torch_bytes", "seconds"} to the stdout it was started with.
"""
