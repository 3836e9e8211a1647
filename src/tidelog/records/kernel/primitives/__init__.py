"""Code that the kernels share. Each primitive exists as C in a ``.pxd``, and as Python in the ``.py`` of the same name.

Cython compiles the inline functions of a ``.pxd`` into each kernel that cimports them, so that sharing costs nothing.
Interpreted, kernels import the ``.py`` instead. `tests/records/test_primitives.py` checks that both agree.
"""
