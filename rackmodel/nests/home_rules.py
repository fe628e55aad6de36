"""Tensors at home in the innermost memory: they rest spread over its instances and never meet the outermost level.

Every word rests in one core; the cores that work with it (q of them, the parts of the fan over ranks the tensor lacks)
share the words out evenly. A core keeps its share for the whole operation, beside the working tile of its storage node;
together never more than all the words it ever works with. q = 1: every word is used where it rests.
"""

from rackmodel.errors import RackmodelError
from rackmodel.nests.problem import NestMachine, NestProblem


def check_homes(problem: NestProblem, machine: NestMachine, home: frozenset[str]) -> None:
    """RackmodelError unless `home` names plain tensors and the machine is a memory, a multicasting grid and cores."""
    if not home:
        return
    for name in sorted(home):
        if problem.tensor(name).affine_ranks:
            raise RackmodelError(f"home: {name} is indexed by a sum, so that neighbours overlap; leave it streamed")
    where = f"home on {machine.name}"
    if len(machine.levels) != 2:
        memories = ", ".join(v.name for v in machine.levels)
        raise RackmodelError(f"{where}: tensors rest in cores below one memory, this machine has the memories {memories}")
    fan, inner = machine.levels[0].fan, machine.levels[1]
    if fan.linear or fan.multicast_width is not None or fan.reduction_width is not None:
        raise RackmodelError(f"{where}: the fan below {machine.levels[0].name} must be x by y without multicast or reduction widths")
    kept_out = sorted(name for name in home if name in inner.bypass)
    if kept_out:
        raise RackmodelError(f"{where}: {inner.name} bypasses {', '.join(kept_out)}; a tensor at home is stored there")
