"""What is said before and after a training, and run.json."""

import math

from veloxseg.console import say
from veloxseg.files import write_json
from veloxseg.train.session import Session

__all__ = ["announce", "dice_text", "known", "write_record"]


def announce(session: Session) -> None:
    state, split, pace = session.state, session.split, session.pace
    parameters = sum(p.numel() for p in session.student.parameters())
    say(
        f"{session.recipe.model}: {parameters / 1e6:.2f} M parameters, modalities {', '.join(session.plan.names)}, "
        f"patch {'×'.join(map(str, session.plan.patch))}, {len(split.train)} training and {len(split.validation)} "
        f"validation cases, {pace.steps_per_epoch} steps per epoch, {session.fabric.device}"
    )
    if not split.validation:
        say("no validation case in this split: the last epoch becomes the model")
    if state.steps:
        say(f"going on after epoch {state.epoch}, step {state.step}")
    write_record(session)


def dice_text(dice: float | None) -> str:
    return "unknown" if dice is None else f"{dice:.3f}"


def known(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def write_record(session: Session) -> None:
    """run.json: versions, seed, data, timings, outcome."""
    if not session.fabric.is_global_zero:
        return
    state, best = session.state, session.state.best
    write_json(
        session.run.path / "run.json",
        {
            **session.machine,
            "seed": session.recipe.seed,
            "data_sha256": session.data,
            "dataset": session.plan.dataset,
            "cases": {"train": len(session.split.train), "validation": len(session.split.validation)},
            "device": str(session.fabric.device),
            "processes": session.fabric.world_size,
            "finished": state.finished,
            "epochs": state.epoch,
            "steps": state.steps,
            "seconds": round(session.elapsed(), 1),
            "step_seconds": round(session.pace.step_seconds, 4),
            "validation_seconds": round(session.pace.validation_seconds, 2),
            "best": None
            if best is None
            else {"epoch": best.epoch, "dice": best.dice, "structures": best.structures},
        },
    )
