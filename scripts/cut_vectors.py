#!/usr/bin/env python3
"""Cuts whole cases out of kernel-vector files into one smaller safetensors file.

Smallest first, a case is taken if it has a trait not seen yet (kind, dtype, page size, empty rows, ...), while the
budget lasts. Cases are renumbered; where each comes from is kept in its metadata as "origin". Prints the table of what
was taken, and what was not covered. The same inputs and budget give the same file.

    scripts/cut_vectors.py --budget 4000000 --out tests/data/kernels/attention.safetensors attention_*.safetensors

With --cases these are taken and no others, whatever their traits: FILE#CASE, FILE without its ending.
"""
import argparse
import json
import os
import struct

SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2}  # others: 1


def read_cases(path):
    with open(path, "rb") as file:
        (header_size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_size))
        data = file.read()
    cases = {}
    for case_id, text in header.pop("__metadata__").items():
        metadata = json.loads(text)
        metadata["origin"] = f"{os.path.basename(path)}#{case_id}"
        cases[case_id] = {"metadata": metadata, "tensors": {}}
    for name, entry in header.items():
        case_id, tensor = name.split("/", 1)
        begin, end = entry["data_offsets"]
        cases[case_id]["tensors"][tensor] = (entry["dtype"], entry["shape"], data[begin:end])
    return list(cases.values())


def size_of(case):
    return sum(len(data) for _, _, data in case["tensors"].values())


def sign(number):
    return (number > 0) - (number < 0)


def kind_of(case):
    m = case["metadata"]
    kind = m.get("kind", m.get("mode"))
    return f"{m['system']} {kind}" if "system" in m else kind


def recurrent_traits(case):
    m = case["metadata"]
    system = m["system"]
    lens = m.get("lens", [])
    tensors = [(system, "with", name) for name in case["tensors"]]
    return {
        (kind_of(case),),
        (system, "dtype", m.get("dtype"), m.get("state_dtype")),
        (system, "packed", m.get("packed")),
        (system, "pads", m.get("pad_out") if m.get("pad_rows") else None),
        (system, "from zero", m.get("zero_init_rows", []) != []),
        (system, "several rows", len(lens) > 1 or m.get("B", 1) > 1),
        *tensors,
    }


def traits(case):
    """What makes a case worth having. The kind is paired with whatever changes a kernel's path."""
    m = case["metadata"]
    if "system" in m:
        return recurrent_traits(case)
    kind = kind_of(case)
    q_lens = m.get("q_lens", m.get("extend_lens", []))
    kv_lens = m.get("kv_lens", [])
    single = [
        ("page_size", m["page_size"]),
        ("heads", m["num_qo_heads"], m.get("num_kv_heads")),
        ("head_dim", m.get("head_dim", m.get("head_dim_ckv"))),
        ("window_right", sign(m.get("window_right", -1))),
        ("num_states", m.get("num_states")),
        ("no keys at all", 0 in kv_lens),
        ("several requests", m["batch"] > 1),
    ]
    paired = [
        ("dtype", m.get("dtype"), m.get("kv_dtype"), m.get("kv_layout")),
        ("causal", m.get("causal")),
        ("window_left", sign(m.get("window_left", -1))),
        ("softcap", m.get("softcap", 0) != 0),
        ("sinks", m.get("sinks", False)),
        ("gpu", m.get("gpu")),
        ("fewer keys than queries", any(k < q for q, k in zip(q_lens, kv_lens))),
    ]
    return set(single) | {(kind,) + trait for trait in paired}


def choose(cases, budget):
    cases = sorted(cases, key=lambda case: (size_of(case), case["metadata"]["origin"]))
    seen, chosen, used = set(), [], 0
    for case in cases:
        if not traits(case) <= seen and used + size_of(case) <= budget:
            chosen.append(case)
            used += size_of(case)
            seen |= traits(case)
    missing = set().union(*map(traits, cases)) - seen
    return sorted(chosen, key=lambda case: case["metadata"]["origin"]), missing


def pick(cases, names):
    by_name = {case["metadata"]["origin"].replace(".safetensors", ""): case for case in cases}
    return [by_name[name] for name in sorted(names)], set()


def write(path, cases):
    tensors = []
    header = {"__metadata__": {}}
    for number, case in enumerate(cases):
        case_id = f"case{number:03d}"
        header["__metadata__"][case_id] = json.dumps(case["metadata"])
        for name, (dtype, shape, data) in sorted(case["tensors"].items()):
            tensors.append((f"{case_id}/{name}", dtype, shape, data))
    tensors.sort(key=lambda tensor: -SIZES.get(tensor[1], 1))  # wide first: every tensor is aligned
    offset = 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, data in tensors:
            file.write(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--budget", type=int, help="bytes of tensors")
    wanted.add_argument("--cases", nargs="+", metavar="FILE#CASE")
    parser.add_argument("--out", required=True)
    parser.add_argument("inputs", nargs="+")
    args = parser.parse_args()
    cases = [case for path in sorted(args.inputs) for case in read_cases(path)]
    chosen, missing = pick(cases, args.cases) if args.cases else choose(cases, args.budget)
    write(args.out, chosen)
    print("| case | kind | origin | bytes |\n|---|---|---|---|")
    for number, case in enumerate(chosen):
        print(f"| case{number:03d} | {kind_of(case)} | {case['metadata']['origin']} | {size_of(case)} |")
    for trait in sorted(missing, key=str):
        print("not covered:", trait)


if __name__ == "__main__":
    main()
