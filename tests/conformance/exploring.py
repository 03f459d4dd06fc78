"""Has hypothesis look for an interleaving that breaks an invariant."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from .interleavings import Interleavings
from .world import World

_STEPS = 25


def explore(world: World, chosen_seed: int, examples: int, *, is_reported: bool = True) -> None:
    """Plays examples in `world`; raises what an invariant says about the first that breaks it.

    With `is_reported` that example is made as small as it gets and printed.
    """

    @seed(chosen_seed)
    def machine() -> Interleavings:
        return Interleavings(world)

    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=_STEPS,
            deadline=None,
            derandomize=False,
            database=None,
            print_blob=True,
            phases=[Phase.generate, Phase.shrink] if is_reported else [Phase.generate],
            verbosity=Verbosity.normal if is_reported else Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        ),
    )
