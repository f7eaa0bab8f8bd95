"""One harness for every figure: serving against a peer, kernels against their floors, the cache alone.

    python -m bench serve      ours and a peer, paired and interleaved          cases/
    python -m bench kernels    native ops, BLAS and the machine's floors        kernels/
    python -m bench cache      the prefix cache and the scheduler alone         cache/
    python -m bench report     results/*.json → RESULTS.md
    python -m bench            all of it

Ratios are the result; absolute times on a shared machine mean little. Imports are relative, so that the
folder can also be shipped inside a wheel under another name.
"""
