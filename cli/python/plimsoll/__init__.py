# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""What fills each GPU of a job, and which layout to use, from the text of a .plan file.

    import plimsoll
    answer = plimsoll.plan(open("job.plan").read())
    answer["best"]["layout"]["tp"], answer["best"]["peak_bytes"]

Every function takes the text of a file and gives what the program's `--json` prints, as plain dicts and
lists: bytes are integers, times seconds, shares 0 to 1 (docs/schemas). That nothing fits is an answer
(`status` is "infeasible"); a mistake in the text is an Error, whose message is what the program says.
"""
import json as _json

from . import _plimsoll

__all__ = ["Error", "bill", "check", "explain", "format", "plan", "run", "timeline", "verify"]


class Error(ValueError):
    """A mistake in a .plan text or in how it was asked about; str() is the diagnostics."""


def run(*arguments, text=""):
    """The program itself: (exit code, standard output, standard error) of a command line, where a file
    called "-" is `text`."""
    if not isinstance(text, (str, bytes)):
        raise TypeError(f"expected the text of a .plan file, not {type(text).__name__}; of a file that is "
                        "pathlib.Path(name).read_text()")
    words = [str(argument) for argument in arguments]
    if any("\0" in word for word in words):
        raise Error("an argument with a NUL character")
    # A surrogate without its other half goes in as it is, for the program to say where it stands.
    encoded = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return _plimsoll.answer([word.encode("utf-8", "surrogatepass") for word in words], encoded)


def _ask(command, text, options):
    arguments = [command, "-"]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(flag)
        elif value is None or value is False or value == "":
            continue  # not asked for; 0 is
        elif isinstance(value, float):
            arguments += [flag, f"{value:f}"]
        else:
            arguments += [flag, str(value)]
    code, out, said = run(*arguments, text=text)
    if code == 130:
        raise KeyboardInterrupt
    if code == 3:
        raise RuntimeError(said)
    if code == 1:
        raise Error(said)
    return out


def plan(text, *, job="", top=3, proof=True, budget=None, timeout=None, on=(), pareto=False):
    """The best layout, its runners-up, or why none fits and what would (plimsoll.plan/1)."""
    return _json.loads(_ask("plan", text, dict(json=True, job=job, top=top, no_proof=not proof, budget=budget,
                                               timeout=timeout, pareto=pareto,
                                               on=on if isinstance(on, str) else ",".join(on or ()))))


def bill(text, *, job="", layout=""):
    """What fills each GPU at one layout, item by item (plimsoll.bill/1)."""
    return _json.loads(_ask("bill", text, dict(json=True, job=job, layout=layout)))


def explain(text, *, job="", layout=""):
    """What binds, what comes close, how far it could grow."""
    return _json.loads(_ask("explain", text, dict(json=True, job=job, layout=layout)))


def timeline(text, *, job="", layout="", rank=None):
    """What a rank holds over a step."""
    return _json.loads(_ask("timeline", text, dict(json=True, job=job, layout=layout, rank=rank)))


def verify(text, *, job="", layout="", device="dry", ranks="worst"):
    """Runs ranks' steps: what was predicted beside what was seen (plimsoll.verify/1)."""
    return _json.loads(_ask("verify", text, dict(json=True, job=job, layout=layout, device=device, ranks=ranks)))


def check(text):
    """What the text declares."""
    return _json.loads(_ask("check", text, dict(json=True)))


def format(text):  # noqa: A001: the program's word is fmt, Python's is this
    """The text in canonical form."""
    return _ask("fmt", text, {})
