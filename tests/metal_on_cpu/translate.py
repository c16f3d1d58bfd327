#!/usr/bin/env python3
"""Turns one .metal file into C++ for the bench, mechanically; the kernel's own lines are not edited otherwise.

    translate.py kernel.metal --define NAME=VALUE... --include DIR... --cpp OUT.cpp [--lint OUT_lint.cpp]

1. Headers are flattened (src/metal/flatten.py) and clang preprocesses the text with the constants of this launch and an
   empty metal_stdlib, so that everything below sees what a compiler sees.
2. The text is checked against the MSL subset (SUBSET below). A breach ends with exit status 3 and one line each:
   file:line: message.
3. `threadgroup T name[n];` in a kernel's body becomes a reference to an array that the runner owns. Attributes of
   parameters, `[[kernel]]` and explicit instantiations with [[host_name]] are taken out and become the entry table.

The --lint file keeps address spaces as attributes and is only compiled with -fsyntax-only (see lint/metal_stdlib).
"""
import argparse
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "src" / "metal"))
import flatten  # noqa: E402

# What MSL 3.1, torch.mps.compile_shader or this project's rules do not allow.
SUBSET = [
    (r"\bfunction_constant\b", "function constants cannot be set by torch.mps.compile_shader; use a #define"),
    (r"\[\[\s*threadgroup\s*\(", "threadgroup memory as an argument cannot be set by torch.mps.compile_shader"),
    (r"\[(?:=|&|this|[A-Za-z_]\w*)?\]\s*(?:\([^()]*\))?\s*(?:mutable\s*)?(?:->\s*\w+\s*)?\{", "a lambda"),
    (r"\bdouble\b", "double does not exist in MSL"),
    (r"\blong\s+long\b", "long long does not exist in MSL; long has 64 bits"),
    (r"\b(?:0[xX][0-9a-fA-F]+|\d+)[uU]?(?:ll|LL)[uU]?\b", "no literal suffix LL in MSL; long has 64 bits"),
    (r"\bstd\s*::", "the namespace std does not exist in MSL"),
    (r"\b(?:new|delete|throw|try|catch|dynamic_cast|typeid|virtual|goto|thread_local)\b", "not in MSL"),
    (r"\b__asm|\basm\b|\bair\.", "an undocumented intrinsic"),
    (r"\bsimdgroup_async_copy\b|\bsimdgroup_event\b", "the undocumented asynchronous copies"),
    (r"\b\d+\.\d*(?:[eE][-+]?\d+)?[hH]\b", "the literal suffix h: write half(x)"),
    (r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?(?![\w.])",
     "a literal without f is a double elsewhere"),
    (r"\(\s*(?:const\s+)?(?:half|bfloat|float|int|uint|short|ushort|long|ulong|bool|char|uchar)[234]\s*\)\s*\(",
     "a C-style vector cast: C++ reads its list as comma operators; write float4(a, b, c, d)"),
    (r"\(\s*(?:const\s+)?(?:device|threadgroup|constant|thread)\b[^()]*[*&]\s*\)\s*[\w(&]",
     "a C-style pointer cast hides address-space mistakes"),
]
ATTRIBUTES = {  # MSL attribute -> (member of TwThread, is an array of 3)
    "thread_position_in_grid": ("position_in_grid", True),
    "thread_position_in_threadgroup": ("position_in_group", True),
    "threadgroup_position_in_grid": ("group_in_grid", True),
    "threads_per_threadgroup": ("threads_per_group", True),
    "dispatch_threads_per_threadgroup": ("dispatch_threads_per_group", True),
    "threadgroups_per_grid": ("groups_per_grid", True),
    "threads_per_grid": ("threads_per_grid", True),
    "thread_index_in_threadgroup": ("index_in_group", False),
    "thread_index_in_simdgroup": ("lane", False),
    "simdgroup_index_in_threadgroup": ("simdgroup", False),
    "simdgroups_per_threadgroup": ("simdgroups_per_group", False),
    "threads_per_simdgroup": (None, False),
    "thread_execution_width": (None, False),
}
MAX_BUFFERS = 31


class Source:
    """Preprocessed text with the original file and line of every character."""

    def __init__(self, text):
        self.text = text
        self.breaches = []
        self.marks = []  # (offset, file, line) of each line
        file, line, offset = "?", 1, 0
        for raw in text.split("\n"):
            marker = re.match(r'# (\d+) "([^"]*)"', raw)
            if marker:
                line, file = int(marker.group(1)) - 1, marker.group(2)
            self.marks.append((offset, file, line))
            line += 1
            offset += len(raw) + 1

    def where(self, offset):
        low, high = 0, len(self.marks) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.marks[middle][0] <= offset:
                low = middle
            else:
                high = middle - 1
        _, file, line = self.marks[low]
        return file, line

    def breach(self, offset, message):
        file, line = self.where(offset)
        self.breaches.append(f"{file}:{line}: {message}")


def preprocess(path, defines, include_directories):
    text = flatten.flatten(path, include_directories, lines=True)
    command = ["clang++-19", "-E", "-x", "c++", "-std=c++17", "-nostdinc", f"-I{HERE}/include/empty",
               "-DTW_METAL_ON_CPU", "-D__METAL_VERSION__=310", "-D__METAL__=1"]
    prefix = "".join(f"#define {name} {value}\n" for name, value in defines)
    done = subprocess.run([*command, "-"], input=prefix + text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        sys.exit(1)
    return done.stdout


def matching(text, start):
    """Offset of the bracket that closes text[start]."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    stack = []
    for i in range(start, len(text)):
        c = text[i]
        if c in pairs:
            stack.append(pairs[c])
        elif stack and c == stack[-1]:
            stack.pop()
            if not stack:
                return i
    raise SystemExit(f"translate.py: unbalanced {text[start]}")


def split_arguments(text):
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


KERNEL = re.compile(r"(?:\bkernel\b|\[\[\s*kernel[^\]]*\]\])(?:\s*\[\[[^\]]*\]\])*\s*void\s+(\w+)\s*\(")
INSTANTIATION = re.compile(r'\btemplate\s*\[\[\s*host_name\s*\(\s*"([^"]+)"\s*\)\s*\]\]\s*'
                           r"(?:kernel|\[\[kernel\]\])\s*([^;]*?);", re.S)


def parse_argument(source, offset, text):
    attribute = re.search(r"\[\[\s*(\w+)\s*(?:\(\s*(\d+)\s*\))?\s*\]\]\s*$", text)
    if not attribute:
        source.breach(offset, f"kernel argument without an attribute: {text}")
        return None
    declaration = text[: attribute.start()].strip()
    declared = re.match(r"(.*?)(\w+)$", declaration, re.S)
    kind, name = declared.group(1).strip(), declared.group(2)
    if attribute.group(1) == "buffer":
        index = int(attribute.group(2))
        if index >= MAX_BUFFERS:
            source.breach(offset, f"buffer({index}): there are {MAX_BUFFERS}")
        space = re.search(r"\b(device|constant)\b", kind)
        if not space:
            source.breach(offset, f"buffer {name} must be in the device or constant address space")
        return {"name": name, "buffer": index, "type": kind, "const": bool(re.search(r"\bconst\b|\bconstant\b", kind)),
                "space": space.group(1) if space else "device", "reference": kind.endswith("&")}
    if attribute.group(1) not in ATTRIBUTES:
        source.breach(offset, f"attribute [[{attribute.group(1)}]] is not known to the bench")
        return None
    return {"name": name, "attribute": attribute.group(1), "type": kind}


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def find_kernels(source):
    """Kernels with their arguments and bodies, and [(host name, template with its arguments)]."""
    # `template [[host_name("n")]] kernel decltype(f<..>) f<..>;` or `... void f<..>(arguments);`
    instantiations = []
    for match in INSTANTIATION.finditer(source.text):
        target = re.sub(r"^\s*(?:decltype\s*\((.*)\)|void)\s*", "", match.group(2), flags=re.S)
        instantiations.append((match.group(1), target.split("(")[0].strip()))
    text = INSTANTIATION.sub(blank, source.text)
    kernels = []
    for match in KERNEL.finditer(text):
        close = matching(text, match.end() - 1)
        arguments = [parse_argument(source, match.start(), part)
                     for part in split_arguments(text[match.end():close])]
        body = text.find("{", close)
        end = matching(text, body)
        is_template = re.search(r"template\s*<[^;{}]*>\s*$", text[: match.start()]) is not None
        kernels.append({"function": match.group(1), "arguments": [a for a in arguments if a], "body": (body, end),
                        "template": is_template})
    for kernel in kernels:
        indices = [a["buffer"] for a in kernel["arguments"] if "buffer" in a]
        if len(indices) != len(set(indices)):
            source.breach(kernel["body"][0], f"{kernel['function']}: two arguments share a buffer index")
    return kernels, instantiations


THREADGROUP = re.compile(r"(?<![\w\[])(?:alignas\s*\([^()]*\)\s*)?threadgroup\s+"
                         r"((?:[\w:]+\s*(?:<[^;<>]*(?:<[^<>]*>)?[^;<>]*>)?\s+)+?)"
                         r"(\w+\s*(?:\[[^;]*?\]\s*)*(?:,\s*\w+\s*(?:\[[^;]*?\]\s*)*)*);")


def replace_threadgroup_arrays(source, text, kernels):
    """`threadgroup T a[n], b[m];` -> one reference each; positions of lines do not change."""
    bodies = [k["body"] for k in kernels]
    counter = [0]

    def replace(match):
        if not any(begin < match.start() < end for begin, end in bodies):
            source.breach(match.start(), "a threadgroup variable outside a kernel's body")
            return match.group(0)
        kind = " ".join(match.group(1).split())
        out = []
        for declarator in split_arguments(match.group(2)):
            name, dims = re.match(r"(\w+)\s*(.*)$", declarator, re.S).groups()
            dims = re.sub(r"\[([^\[\]]*)\]", r"[(\1)]", " ".join(dims.split()))
            out.append(f'auto& {name} = tw::threadgroup_array<{kind}{dims}, {counter[0]}>("{name}");')
            counter[0] += 1
        newlines = "\n" * match.group(0).count("\n")
        return " ".join(out) + newlines

    return THREADGROUP.sub(replace, text)


def remove_attributes(text):
    text = INSTANTIATION.sub(blank, text)
    return re.sub(r"\[\[[^\[\]]*\]\]", blank, text)


def check_subset(source):
    for pattern, message in SUBSET:
        for match in re.finditer(pattern, source.text):
            source.breach(match.start(), message)


FUNCTION = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
NOT_A_FUNCTION = {"if", "for", "while", "switch", "return", "sizeof", "alignas", "alignof", "decltype", "static_cast"}


def check_recursion(source):
    """MSL has no recursion. A call is unqualified and has as many arguments as the function that it would repeat."""
    text = source.text
    bodies = []
    for match in FUNCTION.finditer(text):
        if match.group(1) in NOT_A_FUNCTION:
            continue
        close = matching(text, match.end() - 1)
        head = re.match(r"\s*(?:const\s*)?\{", text[close + 1: close + 40])
        if head:
            begin = close + head.end()
            bodies.append(((match.group(1), len(split_arguments(text[match.end():close]))), match.start(), begin,
                           matching(text, begin)))
    names = {name for name, _, _, _ in bodies}
    calls = {}
    for name, _, begin, end in bodies:
        for call in FUNCTION.finditer(text, begin, end):
            before = text[:call.start()].rstrip()[-2:]
            if before.endswith((".", "::", "->")):
                continue
            target = (call.group(1), len(split_arguments(text[call.end():matching(text, call.end() - 1)])))
            if target in names:
                calls.setdefault(name, set()).add(target)
    for name, at, _, _ in bodies:
        reached, todo = set(), list(calls.get(name, ()))
        while todo:
            step = todo.pop()
            if step not in reached:
                reached.add(step)
                todo += calls.get(step, ())
        if name in reached:
            source.breach(at, f"recursion: {name[0]} reaches itself")


SCALARS = "bool|char|uchar|short|ushort|int|uint|long|ulong|half|bfloat|float"
SPACE = re.compile(r"\b(?:device|threadgroup|constant|thread)\b")


def check_address_spaces_named(source):
    """Apple's compiler wants an address space in the type of every pointer and reference."""
    text = source.text
    named = set(re.findall(r"\b(?:struct|class|typename)\s+(\w+)", text))
    types = "|".join([rf"(?:{SCALARS})[234]?", r"simdgroup_\w+(?:\s*<[^<>;]*>)?", r"vec\s*<[^<>;]*>", "auto",
                      *map(re.escape, sorted(named))])
    declarator = rf"\b(?:{types})(?:\s*<[^<>;(){{}}]*>)?(?:\s+const)?\s*[*&]+\s*(?:const\s+)?\w+\s*[,;:=)\[]"
    for match in re.finditer(declarator, text):
        start = max(text.rfind(c, 0, match.start()) for c in "(,;{}")
        if not SPACE.search(text, start + 1, match.end()):
            source.breach(match.start(), f"no address space: {' '.join(match.group(0).split())}")


def check_program_scope(source):
    """A variable at program scope must be constant."""
    text = re.sub(r"(?m)^#.*$", lambda m: " " * len(m.group(0)), source.text)
    start = at = 0
    while at < len(text):
        c = text[at]
        if c == "{":
            if re.search(r"\bnamespace(?:\s+\w+)?\s*$", text[start:at]):
                start = at + 1
            elif "=" in text[start:at]:  # an initialiser: the declaration goes on
                at = matching(text, at)
            else:
                at = matching(text, at)
                if not re.search(r"\b(?:struct|class|enum|union)\b[^(]*$", text[start:at].split("{")[0]):
                    start = at + 1
        elif c == "}":
            start = at + 1
        elif c == "(":
            at = matching(text, at)
        elif c == ";":
            declaration = re.sub(r"^\s*(?:\[\[[^\]]*\]\]\s*)*", "", text[start:at])
            is_type = re.match(r"(?:using|typedef|template|struct|class|enum|union|static_assert)\b", declaration)
            is_function = "(" in declaration.split("=")[0]
            if declaration.strip() and not is_type and not is_function and not re.search(r"\bconstant\b", declaration):
                source.breach(start + len(text[start:at]) - len(declaration),
                              f"a variable at program scope that is not constant: {' '.join(declaration.split())[:60]}")
            start = at + 1
        at += 1


def glue(kernels, instantiations):
    entries = []
    for kernel in kernels:
        if kernel["template"]:
            for name, target in instantiations:
                if re.match(rf"{kernel['function']}\s*<", target):
                    entries.append((name, target, kernel))
        else:
            entries.append((kernel["function"], kernel["function"], kernel))
    out = ['\n#line 1 "glue"']
    for number, (_, target, kernel) in enumerate(entries):
        values, table = [], []
        for a in kernel["arguments"]:
            kind = re.sub(r"\bconstant\b", "const", re.sub(r"\b(?:device|thread)\b", "", a["type"]))
            kind = " ".join(kind.split())
            if "buffer" in a:
                how = "Reference" if a["reference"] else "Pointer"
                values.append(f"tw::{how}{{buffers[{a['buffer']}]}}")
                table.append(f'{{{a["buffer"]}, tw_{a["space"]}, {int(a["const"])}, "{a["name"]}"}}')
            else:
                member, is_array = ATTRIBUTES[a["attribute"]]
                bare = re.sub(r"\bconst\b|&", "", kind).strip()
                if member is None:
                    values.append(f"static_cast<{bare}>(32)")
                elif is_array:
                    values.append(f"tw::Coordinate<{bare}>::make(at->{member})")
                else:
                    values.append(f"static_cast<{bare}>(at->{member})")
        arguments = ", ".join(table) if table else '{-1, tw_device, 1, ""}'
        out.append(f"static const TwArgument tw_arguments_{number}[] = {{{arguments}}};")
        out.append('__attribute__((no_sanitize("thread"))) static void '
                   f"tw_run_{number}([[maybe_unused]] const TwThread* at, "
                   "[[maybe_unused]] void* const* buffers) {")
        out.append(f"  {target}({', '.join(values)});\n}}")
    out += ['extern "C" {', "extern TW_EXPORT const TwEntry tw_entries[];", "extern TW_EXPORT const int tw_entry_count;", "}"]
    out.append('const TwEntry tw_entries[] = {')
    for number, (name, _, kernel) in enumerate(entries):
        count = sum("buffer" in a for a in kernel["arguments"])
        out.append(f'  {{"{name}", tw_run_{number}, tw_arguments_{number}, {count}}},')
    out.append("};")
    out.append(f'const int tw_entry_count = {len(entries)};')
    out.append("#ifdef TW_COUNTING\nTwCounts tw_counts = {};\n"
               'extern "C" TW_EXPORT TwCounts* tw_counts_address() { return &tw_counts; }\n#endif')
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--define", action="append", default=[])
    parser.add_argument("--runtime", action="append", default=[],
                        help="NAME=INDEX: a constant that is read from the runner's table when the object is loaded")
    parser.add_argument("--include", action="append", default=[], type=pathlib.Path)
    parser.add_argument("--cpp", type=pathlib.Path, required=True)
    parser.add_argument("--lint", type=pathlib.Path)
    arguments = parser.parse_args()
    defines = [tuple(d.split("=", 1)) if "=" in d else (d, "1") for d in arguments.define]
    runtime = [tuple(d.split("=", 1)) for d in arguments.runtime]
    defines += [(name, f"(tw_runtime_constants[{index}])") for name, index in runtime]
    try:
        text = preprocess(arguments.source, defines, arguments.include)
    except (flatten.FlattenError, OSError) as error:
        print(error)
        sys.exit(3)
    source = Source(text)
    check_subset(source)
    check_recursion(source)
    check_address_spaces_named(source)
    check_program_scope(source)
    kernels, instantiations = find_kernels(source)
    if not kernels:
        source.breaches.append(f"{arguments.source}:1: no kernel")
    replaced = replace_threadgroup_arrays(source, text, kernels)
    if source.breaches:
        print("\n".join(dict.fromkeys(source.breaches)))
        sys.exit(3)
    prologue = '#include <metal_stdlib>\nextern "C" long tw_runtime_constants[];\n'
    arguments.cpp.write_text(prologue + remove_attributes(replaced) + glue(kernels, instantiations))
    if arguments.lint:
        arguments.lint.write_text(prologue + remove_attributes(THREADGROUP.sub(r"static threadgroup \1 \2;", text)))


if __name__ == "__main__":
    main()
