#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Runs the `bill`, `plan`, `explain`, `timeline`, `verify` and `diagnose` commands of .plan files with --json and holds the answers against docs/schemas.

usage: json_outputs.py --plimsoll PROGRAM --schemas FOLDER [--jsonschema] EXAMPLES…

Without --jsonschema the schemas are read by the few rules below, which need nothing but Python, and sums are checked
too. With it the jsonschema package does the reading; where that is missing the test is skipped (exit 77).
"""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys

SKIPPED = 77
COMMAND = re.compile(r"^#\$ (plimsoll (?:bill|plan|explain|timeline|verify|diagnose|export) .*)$", re.M)
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def violations(value, schema, root, at="$"):
    """Where \\a value breaks \\a schema: the keywords that our schemas use, and no others."""
    known = {"$ref", "$schema", "$defs", "title", "description", "type", "const", "enum", "anyOf", "minimum", "maximum", "exclusiveMinimum",
             "required", "properties", "additionalProperties", "items", "minItems"}
    assert set(schema) <= known, f"unknown keyword in {sorted(schema)}"
    if "$ref" in schema:
        return violations(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, at)
    if "anyOf" in schema:
        tries = [violations(value, option, root, at) for option in schema["anyOf"]]
        return [] if [] in tries else min(tries, key=len)
    if "const" in schema and value != schema["const"]:
        return [f"{at}: {value!r} is not {schema['const']!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r} is none of {schema['enum']}"]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(is_type(value, kind) for kind in kinds):
        return [f"{at}: {value!r} is no {' or '.join(kinds)}"]
    found = []
    if is_type(value, "number"):
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            found.append(f"{at}: {value} is out of range")
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            found.append(f"{at}: {value} is not above {schema['exclusiveMinimum']}")
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            found.append(f"{at}: {len(value)} entries are too few")
        for index, entry in enumerate(value):
            found += violations(entry, schema.get("items", {}), root, f"{at}[{index}]")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        found += [f"{at}: no {name!r}" for name in schema.get("required", []) if name not in value]
        for name, entry in value.items():
            if name in properties:
                found += violations(entry, properties[name], root, f"{at}.{name}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{at}: {name!r} is not expected")
    return found


def sums(bill):
    """Where a bill does not add up to the byte."""
    found = []
    if bill.get("status") == "infeasible":
        return found
    for stage in bill["stages"]:
        peak, at = stage["peak_bytes"], f"stage {stage['stage']}"
        by_category = dict.fromkeys(stage["categories"], 0)
        for item in stage["items"]:
            by_category[item["category"]] = by_category.get(item["category"], 0) + item["bytes"]
        if by_category != stage["categories"]:
            found.append(f"{at}: items give {by_category}, categories say {stage['categories']}")
        if sum(stage["categories"].values()) != peak:
            found.append(f"{at}: categories add up to {sum(stage['categories'].values())}, not to {peak}")
        if not stage["live_bytes"] <= stage["allocated_bytes"] <= stage["reserved_bytes"] <= peak:
            found.append(f"{at}: live <= allocated <= reserved <= peak does not hold")
    worst = next(stage for stage in bill["stages"] if stage["stage"] == bill["peak_stage"])
    if (worst["peak_bytes"], worst["hbm_bytes"]) != (bill["peak_bytes"], bill["hbm_bytes"]):
        found.append("peak_bytes and hbm_bytes are not their stage's")
    if bill["fits"] != (bill["peak_bytes"] <= bill["hbm_bytes"]) or bill["verdict"] == ("does not fit" if bill["fits"] else "fits"):
        found.append(f"fits is {bill['fits']} and the verdict {bill['verdict']!r}")
    if sum(bill["layout"]["stage_layers"]) != sum(stage["layers"] for stage in bill["stages"]):
        found.append("the layout's layers are not those of the stages")
    return found


def adds_up(timeline):
    """Where a timeline's moments and columns do not add up to the byte."""
    found = []
    columns = list(timeline["around_peak"])
    for name in ("first_step", "steady_step"):
        step = timeline[name]
        columns += step["columns"]
        if sum(column["moments"] for column in step["columns"]) != step["moments"]:
            found.append(f"{name}: the columns are not of all moments")
        if max(column["bytes"] for column in step["columns"]) != step["peak"]["bytes"]:
            found.append(f"{name}: no column is as high as the peak")
        for moment in [step["peak"]] + step["parts"]:
            if not moment["bytes"] == sum(item["bytes"] for item in moment["items"]) == sum(moment["categories"].values()):
                found.append(f"{name}: items, categories and bytes of the {moment['moment']} differ")
    if any(column["bytes"] != sum(column["categories"].values()) for column in columns):
        found.append("a column's categories do not add up")
    if timeline["peak_bytes"] != timeline["steady_step"]["peak"]["bytes"]:
        found.append("peak_bytes is not the steady step's")
    return found


def agreement(verification):
    """Where a verification's differences are not those of its bytes."""
    found = [f"rank {rank['rank']}: the difference is not observed less predicted" for rank in verification["ranks"]
             if rank["difference"] != rank["observed_bytes"] - rank["predicted_bytes"]]
    worst = max((abs(rank["difference"]) for rank in verification["ranks"]), default=0)
    if abs(verification["worst_difference"]) != worst:
        found.append("worst_difference is not a rank's")
    if verification["agrees"] != (worst == 0 and "failure" not in verification):
        found.append("agrees does not follow from the ranks")
    return found


CHECKS = {"bill": sums, "timeline": adds_up, "verify": agreement}


def by_package(schema):
    """Validation by the jsonschema package, or None where it is missing."""
    try:
        import jsonschema
    except ImportError:
        return None
    validator = jsonschema.Draft202012Validator(schema)
    return lambda answer: [f"{error.json_path}: {error.message}" for error in validator.iter_errors(answer)]


def answers(program, plan):
    """(command, kind, text) of every command of a file that has a JSON form."""
    for command in COMMAND.findall(plan.read_text(encoding="utf-8")):
        if "--json" in command:
            continue
        words = [program if word == "plimsoll" else plan.name if word == "FILE" else word
                 for word in shlex.split(command)] + ["--json"]
        said = [subprocess.run(words, cwd=plan.parent, stdin=subprocess.DEVNULL, capture_output=True, timeout=600).stdout
                for _ in range(2)]
        yield command, words[1], said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True, type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--schemas", required=True, type=pathlib.Path)
    parser.add_argument("--jsonschema", action="store_true", help="let the jsonschema package read the schemas")
    parser.add_argument("examples", type=pathlib.Path, nargs="+", help="folders of .plan files")
    options = parser.parse_args()
    readers = {}
    for kind in ("bill", "plan", "explain", "timeline", "verify", "diagnose", "export"):
        schema = json.loads((options.schemas / f"{kind}.schema.json").read_text(encoding="utf-8"))
        readers[kind] = by_package(schema) if options.jsonschema else lambda answer, s=schema: violations(answer, s, s)
        if readers[kind] is None:
            print("skipped: the Python package jsonschema is not installed")
            return SKIPPED
    problems, count = [], 0
    for plan in sorted(plan for folder in options.examples for plan in folder.glob("*.plan")):
        for command, kind, said in answers(options.plimsoll, plan):
            count += 1
            where = f"{plan.name}: {command} --json: "
            if said[0] != said[1]:
                problems.append(where + "two runs differ")
            try:
                answer = json.loads(said[0])
            except ValueError as error:
                problems.append(where + f"no JSON: {error}")
                continue
            found = readers[kind](answer)
            if kind in CHECKS and not found:
                sides = [answer["bill"], answer["against"]] if answer["schema"] == "plimsoll.against/1" else [answer]
                found = [problem for side in sides for problem in CHECKS[kind](side)]
            problems += [where + problem for problem in found]
    if count == 0:
        problems.append("no command found")
    print("\n".join(problems) or f"{count} answers, all as the schemas say")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
