"""All that is written in C.

Here, the library that runs offline models: source files to compile into a program (``docs/guides/c.md``); one of them
is the pool of threads, which Python's networks use as well. In ``support``, what networks are linked with, its objects,
and the pool as a library (``make support``).

``python -m opbuild.native`` prints the folder that holds them.
"""
