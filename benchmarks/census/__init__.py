"""Modules that `tritonsmith.benchmarks.module_census` brings in: blocks of libraries, and modules written as projects have them."""
