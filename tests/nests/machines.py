"""The four machines on which loop-nest mappers are compared, as plain values (as specs/tiny, tiny_cb, glb_pe and edge3)."""

from rackmodel.nests import Region, solve_region
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine, NestProblem, NestTensor

PJ = 1e-12


def level(name, capacity, pj, bandwidth, fan=None):
    return NestLevel(name, capacity, pj * PJ, pj * PJ, bandwidth, fan=fan or NestFan())


def big_buffer():
    return level("GlobalBuffer", 67108864, 1, 3.2e13, NestFan(32, 32))


def tiny(rate=1e9, glb_bits=65536):
    buffer = level("GlobalBuffer", glb_bits, 1, 1.28e11, NestFan(4, 4))
    return NestMachine("tiny", (level("DRAM", None, 10, 6.4e10), buffer), NestCompute(rate, 0.5 * PJ))


def tiny_cb():
    return tiny(5e7)


def glb_pe():
    return NestMachine("glb_pe", (level("DRAM", None, 8, 8e12), big_buffer()), NestCompute(1e9, 0.5 * PJ))


def edge3(rf_bits=8192):
    registers = level("RegFile", rf_bits, 0.05, float("inf"))
    return NestMachine("edge3", (level("DRAM", None, 8, 8e12), big_buffer(), registers), NestCompute(1e9, 0.5 * PJ))


def rack8():
    """Host pool, 8 chips with HBM (the switch's hops left out), GLB and 32 x 32 MACs each."""
    return NestMachine(
        "rack8",
        (
            level("HostPool", None, 20, 8e12, NestFan(8)),
            level("HBM", 687194767360, 4, 1.6e13),
            level("GlobalBuffer", 67108864, 1, 3.2e13, NestFan(32, 32)),
        ),
        NestCompute(1e9, 0.5 * PJ),
    )


def einsum(name, output, inputs, sizes):
    """einsum("QK", ("QK", "b m p h g"), [("Q", "b m h g e"), ("K", "b p h e")], {...}); "p+r" is an affine index."""

    def tensor(entry, out):
        return NestTensor(entry[0], tuple(tuple(i.split("+")) for i in entry[1].split()), 16, out)

    tensors = (*tuple(tensor(t, False) for t in inputs), tensor(output, True))
    used = {r for t in tensors for r in t.ranks}
    return NestProblem(name, {r: s for r, s in sizes.items() if r in used}, tensors)


def gemm(m, k, n):
    return einsum("gemm", ("C", "m n"), [("A", "m k"), ("B", "k n")], {"m": m, "k": k, "n": n})


def attention(batch=1, s=2048, d=4096, h=8, g=4, e=128):
    sizes = {"b": batch, "m": s, "p": s, "d": d, "h": h, "g": g, "e": e, "f": e, "j": d}
    return [
        einsum("Q", ("Q", "b m h g e"), [("I", "b m d"), ("WQ", "d h g e")], sizes),
        einsum("K", ("K", "b p h e"), [("I", "b p d"), ("WK", "d h e")], sizes),
        einsum("V", ("V", "b p h f"), [("I", "b p d"), ("WV", "d h f")], sizes),
        einsum("QK", ("QK", "b m p h g"), [("Q", "b m h g e"), ("K", "b p h e")], sizes),
        einsum("AV", ("AV", "b m h g f"), [("QK", "b m p h g"), ("V", "b p h f")], sizes),
        einsum("Z", ("Z", "b m j"), [("AV", "b m h g f"), ("WZ", "h g f j")], sizes),
    ]


def ffn(m=2048, d=4096, f=14336):
    sizes = {"m": m, "d": d, "f": f, "e": d}
    return [
        einsum("Up", ("H", "m f"), [("I", "m d"), ("WU", "d f")], sizes),
        einsum("Down", ("O", "m e"), [("H", "m f"), ("WD", "f e")], sizes),
    ]


def solve_fused(first, second, machine, resident=()):
    """The least energy of two einsums fused."""
    return solve_region(Region.of((first, second), machine, resident))
