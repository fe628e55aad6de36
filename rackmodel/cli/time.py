"""`rackmodel time ARCH WHAT`: one matrix product, kernel or collective, priced as the engine prices it in a step."""

from __future__ import annotations

from typing import Annotated

import typer

from rackmodel.cli.options import ArchitectureArg, JsonOption, SetOption
from rackmodel.cli.printing import echo, print_json


def time(
    architecture: ArchitectureArg,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="gemm, attention, experts, softmax, layernorm, another kernel of the part (rmsnorm), or a collective: all_reduce, ...",
        ),
    ],
    shape: Annotated[
        str,
        typer.Argument(
            metavar="SHAPE",
            help="MxNxK of a product (BxMxNxK of a batch), SEQUENCESxHEADSxKEY_HEADSxHEAD_SIZExNEW_TOKENSxKEYS of attention, "
            "TOKENSxHIDDENxINTERxCHOSENxEXPERTS of experts, ROWSxCOLUMNS of a kernel, the message of a collective ('64 MiB').",
        ),
    ],
    precision: Annotated[
        str, typer.Option("--precision", metavar="BITS", help="Width of the operands (default 16 bit); for experts, the kernel.")
    ] = "",
    kernel: Annotated[str, typer.Option("--kernel", metavar="NAME", help="Attention kernel; default: the part's own.")] = "",
    way: Annotated[
        str, typer.Option("--pass", metavar="PASS", help="Attention of a training step: forward or backward; absent: as servers call it.")
    ] = "",
    members: Annotated[int | None, typer.Option("--members", metavar="N", min=1, help="Accelerators of a collective; default: 8.")] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", min=1, help="Nodes that the members are spread over evenly; default: as few as possible."),
    ] = None,
    library: Annotated[
        str, typer.Option("--library", metavar="NAME", help="Collective as measured of this library on the machine's network: nccl, ...")
    ] = "",
    alone: Annotated[bool, typer.Option("--alone", help="Launched by the host and waited for, not queued behind other kernels.")] = False,
    looped: Annotated[
        bool, typer.Option("--looped", help="Matrix product repeated in a loop, by the fits of `calibrate` (kernels: fitted of a profile).")
    ] = False,
    sets: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time of one kernel or collective, and what it consists of."""
    from rackmodel.inputs import read_architecture
    from rackmodel.report.tables import format_si
    from rackmodel.validation.single import OneCall, time_of

    machine = read_architecture(architecture, sets or ())
    call = OneCall(shape, precision, alone=alone, looped=looped, kernel=kernel, way=way, members=members, nodes=nodes, library=library)
    found = time_of(machine, what, call)
    if as_json:
        print_json({"what": what, "shape": shape, **found.to_dict()})
        return
    echo(f"{what} {shape} on {machine.name}: {format_si(found.seconds, 's')}")
    for name, seconds in found.bins.items():
        echo(f"  {name:<24}{format_si(seconds, 's')}")
    if found.rate:
        echo(f"  {found.rate_of:<24}{format_si(found.rate, found.rate_unit.replace('byte', 'B'))}")
    if found.note:
        echo(found.note)
