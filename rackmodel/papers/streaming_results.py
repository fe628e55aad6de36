"""Results of the weight streaming white paper beside language models' scaling (seed 001, section 8): 3D U-Net, GenSLM beside Polaris."""

from __future__ import annotations

from rackmodel.studies.findings import Finding, Need, by_reading, judged, near
from rackmodel.studies.run import Points

UNET_GB = 64  # seed 001, 8.2: "64 gigabytes of storage for intermediate activations from the forward pass per image"
WAFERS, GPUS = (1, 4, 16), (64, 256, 512)


def activations(points: Points) -> Finding:
    """What one volume's forward pass leaves for the backward pass."""
    kept = points.one(run="unet").memory["activations"]
    figures = {"activations of a volume, GB": kept / 1e9, "activations of a volume, GiB": kept / 2**30}
    readings = {
        "a gigabyte is 2^30 bytes": [near("activations over printed", kept / 2**30 / UNET_GB, 1.0, 0.05)],
        "a gigabyte is 10^9 bytes": [near("activations over printed", kept / 1e9 / UNET_GB, 1.0, 0.05)],
    }
    why = (
        "the inputs of its convolutions with their borders, in 16 bit; the features of its levels are not printed (RECALLED: MLPerf's, 32 "
        "to 320). One wafer's SRAM is 40 GB: a volume does not stay on it whole"
    )
    return by_reading("W16", "section 8.2", "3D U-Net keeps 64 GB of activations for a volume of 512 cubed", readings, figures, why=why)


def polaris(points: Points) -> Finding:
    """A GPT of 250 M at sequences of 10,240 on wafers and on Polaris' GPUs, in tokens a second."""
    rate = {}
    for machine, counts in (("cs2", WAFERS), ("polaris", GPUS)):
        for n in counts:
            result = points.one(run="small", architecture=machine, accelerators=n)
            assert result.tokens is not None
            rate[machine, n] = result.tokens / result.latency_s
    figures = {f"{machine}, {n}, tokens/s": value for (machine, n), value in rate.items()}
    a_wafer, a_gpu = rate["cs2", 1], rate["polaris", GPUS[0]] / GPUS[0]
    figures["GPUs of Polaris that equal a CS-2, by 64 of them"] = a_wafer / a_gpu
    why = "ideal overlap, scores never held, on both; shape and batch ASSUMED. The paper's own numbers are plotted, not printed"
    needs = [
        Need("a CS-2 over a GPU, tokens/s", a_wafer / a_gpu, least=8),
        near("16 CS-2 over one, of linear", rate["cs2", 16] / rate["cs2", 1] / 16, 1.0, 0.1),
    ]
    claim = "a CS-2 trains a GPT of 250 M on full genomes faster than two nodes' eight GPUs, 16 of them linearly"
    return judged("W17", "section 8.3", claim, needs, figures, weight="ours", why=why)
