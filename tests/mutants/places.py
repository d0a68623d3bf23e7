"""Places of the sources that a slip may change, and the slips. Clang's tree says what an expression is and of which type, so
that arguments are swapped with arguments of their type, and a name becomes another one that fits there."""

import dataclasses
import pathlib
import re

from clang.cindex import CursorKind as Kind
from clang.cindex import Index, TypeKind

# Rooms that get slips, and files that get none: judges (they find slips, so a slip in one hides others), refusals, tables, words, and
# headers (a judge may include them, and would believe the slip).
ROOMS = {
    "backends": ("src/backends",), "launch": ("src/launch",), "runtime": ("src/runtime",), "kernels": ("src/kernels",),
    "graph": ("src/graph/capture", "src/graph/executor", "src/graph/memory", "src/graph/sim"),
}  # fmt: skip
LEFT_OUT = re.compile(
    r"rows_check|buffer_rows|features\.h|/laws\.|_families|runtime/(check_|batch_laws|small_steps)|kernels/(isa|simd)|isa_units|"
    r"footprint|spans\.h|_args|checked_|graph/capture/(audit|check_)|graph/executor/(races|happens|orders)|"
    r"graph/memory/(memory|shadow|asan|host)|sim/(device_|sim_orders)"
)
BODIES = ("", "_linear", "_sparse", "_index")  # of each instruction set
UNITS = (*("generic" + body for body in BODIES), *("avx512" + body for body in BODIES), "amx_soft", "avx512bf16")
VECTORS = ("-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512bf16")
WORDS = re.compile(  # functions that describe, refuse or judge
    r"^(describe|to_string|explain|name|info|operator<<|.*_(text|words|name|law|finding)$|finding|refus|why|check|validate|expect|"
    r"key_lists|merged_parts)"
)
DRAWS = re.compile(r"\bchoices_?\b")  # a slip in what a generator draws is another legal history

RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
SUMS = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "&": "|", "|": "&"}
INTEGERS = {TypeKind.SHORT, TypeKind.USHORT, TypeKind.INT, TypeKind.UINT, TypeKind.LONG, TypeKind.ULONG}
NUMBERS = INTEGERS | {TypeKind.FLOAT, TypeKind.DOUBLE}
LOOPS = {Kind.FOR_STMT, Kind.CXX_FOR_RANGE_STMT, Kind.WHILE_STMT, Kind.DO_STMT}
FUNCTIONS = {Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.FUNCTION_TEMPLATE, Kind.CONVERSION_FUNCTION}
EFFECTS = re.compile(  # what must not run twice: assignments, calls of what we do not know, lambdas
    r"\+\+|--|(?<![=!<>+*/%&|^-])=(?!=)|[-+*/%&|^]=|\b(?!static_cast|size|ssize|empty|min|max|pages_for|sizeof)\w+\s*\(|"
    r"\[[^\]]*\]\s*[({]"
)


@dataclasses.dataclass(frozen=True)
class Slip:
    """Edits are (begin, end, text). The text names the switch: ON where values are compared, ACTS where it says that it acts."""

    operator: str
    edits: tuple
    was: str
    becomes: str


@dataclasses.dataclass(frozen=True)
class Mutant:
    id: str
    file: str
    line: int
    text: str  # the line, by which an argued one is known when lines move
    function: str
    slip: Slip

    @property
    def room(self):
        return self.id.split(".")[0]

    def words(self):
        return f"{self.file}:{self.line}: {squeezed(self.slip.was)}  ->  {squeezed(self.slip.becomes)}"


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def is_pure(*texts):
    return not any(EFFECTS.search(text) for text in texts)


def either(was, becomes, counts):
    """The slip where it is switched on, counted where it changes the value."""
    return f"(ON ? sg_seen(({becomes}), ({was})) : ({was}))" if counts else f"(ACTS ? ({becomes}) : ({was}))"


def stripped(kind):
    """A type without what does not matter to an argument: that it is a reference, or const itself."""
    kind = kind.get_canonical()
    if kind.kind in (TypeKind.LVALUEREFERENCE, TypeKind.RVALUEREFERENCE):
        kind = kind.get_pointee().get_canonical()
    return kind.spelling.removeprefix("const ") if kind.kind != TypeKind.POINTER else kind.spelling


def is_object(cursor):
    """An object that has an address. One that is copied instead, or a temporary that lives longer, would be another program
    even while the slip is off."""
    while cursor.kind in (Kind.UNEXPOSED_EXPR, Kind.PAREN_EXPR):
        children = list(cursor.get_children())
        if len(children) != 1:
            return False
        cursor = children[0]
    if cursor.kind == Kind.CALL_EXPR and cursor.referenced is not None:
        return cursor.referenced.result_type.kind == TypeKind.LVALUEREFERENCE
    return cursor.kind in (Kind.DECL_REF_EXPR, Kind.MEMBER_REF_EXPR, Kind.ARRAY_SUBSCRIPT_EXPR)


class Reader:
    """All slips of one parsed unit, by file."""

    def __init__(self, root, rooms):
        self.root, self.rooms, self.found, self.sources = str(root) + "/", rooms, {}, {}

    def room_of(self, name):
        if LEFT_OUT.search(name) or name.endswith(".h"):
            return None
        return next((room for room in self.rooms if name.startswith(tuple(part + "/" for part in ROOMS[room]))), None)

    def read(self, unit):
        for cursor in unit.cursor.get_children():
            name = cursor.location.file.name if cursor.location.file else ""
            if name.startswith(self.root) and self.room_of(name[len(self.root) :]):
                self.name = name[len(self.root) :]
                if self.name not in self.sources:
                    self.sources[self.name] = pathlib.Path(name).read_bytes()
                self.source = self.sources[self.name]
                self.declaration(cursor)

    def text(self, cursor):
        e = cursor.extent
        return self.source[e.start.offset : e.end.offset].decode()

    def between(self, begin, end):
        return self.source[begin:end].decode()

    def declaration(self, cursor):
        if cursor.kind in FUNCTIONS:
            if cursor.is_definition() and not WORDS.search(cursor.spelling):
                Body(self, cursor).read()
        elif cursor.kind not in (Kind.VAR_DECL, Kind.ENUM_DECL, Kind.FIELD_DECL):
            for child in cursor.get_children():
                self.declaration(child)


class Body:
    """Slips of one function."""

    def __init__(self, reader, function):
        self.reader, self.function, self.scope = reader, function, []
        self.seen = reader.found.setdefault(reader.name, {})

    def read(self):
        for child in self.function.get_children():
            if child.kind == Kind.PARM_DECL:
                self.scope.append(child)
        for child in self.function.get_children():
            if child.kind == Kind.COMPOUND_STMT:
                self.visit(child, self.function)

    def add(self, operator, cursor, edits, was, becomes):
        slip = Slip(operator, tuple(edits), was, becomes)
        self.seen.setdefault((slip.edits, operator), (cursor.extent.start.line, self.function.spelling, slip))

    def replace(self, operator, cursor, becomes, counts=None):
        begin, end, was = cursor.extent.start.offset, cursor.extent.end.offset, self.reader.text(cursor)
        if becomes == was or DRAWS.search(was):
            return
        counts = is_pure(was, becomes) if counts is None else counts
        self.add(operator, cursor, [(begin, end, either(was, becomes, counts))], was, becomes)

    def visit(self, cursor, parent):
        before = len(self.scope)
        if cursor.kind in (Kind.STATIC_ASSERT, Kind.STRING_LITERAL) or self.is_words(cursor):
            return
        begin = max(0, cursor.extent.start.offset - len("constexpr   "))
        if cursor.kind == Kind.VAR_DECL and "constexpr" in self.reader.between(begin, cursor.location.offset):
            self.scope.append(cursor)
            return
        self.slips(cursor, parent)
        children = list(cursor.get_children())
        for child in children:
            if cursor.kind == Kind.VAR_DECL and child.extent.start.offset < cursor.location.offset:
                continue  # its type
            if cursor.kind == Kind.CASE_STMT and child == children[0]:
                continue
            if cursor.kind in (Kind.DECL_REF_EXPR, Kind.TYPE_REF, Kind.LAMBDA_EXPR) and child.kind == Kind.INTEGER_LITERAL:
                continue
            if cursor.kind == Kind.VAR_DECL and cursor.type.kind == TypeKind.CONSTANTARRAY and child.kind != Kind.INIT_LIST_EXPR:
                continue
            self.visit(child, cursor)
        if cursor.kind in (Kind.VAR_DECL, Kind.PARM_DECL):
            self.scope.append(cursor)
        elif cursor.kind != Kind.DECL_STMT:
            del self.scope[before:]

    def is_words(self, cursor):
        text = self.reader.text(cursor) if cursor.kind == Kind.CALL_EXPR else ""
        return bool(re.match(r"(assert|fmt::format|add_finding|make_finding|std::to_string|to_string|refuse|status_?\.add)\b", text))

    def slips(self, cursor, parent):
        kind = cursor.kind
        if kind == Kind.INTEGER_LITERAL:
            self.integer(cursor, parent)
        elif kind == Kind.FLOATING_LITERAL:
            self.floating(cursor)
        elif kind == Kind.CXX_BOOL_LITERAL_EXPR:
            was = self.reader.text(cursor)
            if was in ("true", "false"):
                self.replace("constant", cursor, "false" if was == "true" else "true", counts=False)
        elif kind == Kind.BINARY_OPERATOR:
            self.binary(cursor)
        elif kind == Kind.COMPOUND_ASSIGNMENT_OPERATOR:
            self.compound(cursor)
        elif kind == Kind.CALL_EXPR:
            self.call(cursor)
        elif kind == Kind.IF_STMT:
            self.condition(cursor)
        elif kind == Kind.CONDITIONAL_OPERATOR:
            self.choice(cursor)
        elif kind == Kind.COMPOUND_STMT:
            for child in cursor.get_children():
                self.statement(child)
        elif kind in LOOPS:
            self.loop(cursor)
        elif kind == Kind.CONTINUE_STMT:
            self.jump(cursor, "break")
        if kind in (Kind.DECL_REF_EXPR, Kind.MEMBER_REF_EXPR):
            self.name(cursor, parent)

    def integer(self, cursor, parent):
        was = self.reader.text(cursor)
        match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([uUlLzZ]*)", was)
        to = parent.type.get_canonical() if parent.kind == Kind.UNEXPOSED_EXPR else cursor.type.get_canonical()
        if not match or to.kind not in INTEGERS | {TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.UCHAR, TypeKind.SCHAR}:
            return
        n = int(match.group(1), 0)
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        for value in sorted({n + 1, max(0, n - 1), 0, 2 * n} - {n}):
            becomes = f"{value}{match.group(2)}"
            one, other = (f"static_cast<{to.spelling}>({text})" for text in (becomes, was))
            self.add("constant", cursor, [(begin, end, f"(ACTS ? {one} : {other})")], was, becomes)

    def floating(self, cursor):
        was = self.reader.text(cursor)
        if re.match(r"[\d.]", was):
            for becomes in (f"2 * {was}", f"0 * {was}", f"-{was}"):
                self.replace("constant", cursor, becomes, counts=False)

    def parts(self, cursor):
        """Left, operator, right, as texts."""
        children = list(cursor.get_children())
        if len(children) != 2:
            return None
        left, right = children
        sign = self.reader.between(left.extent.end.offset, right.extent.start.offset).strip()
        return self.reader.text(left), sign, self.reader.text(right), left, right

    def binary(self, cursor):
        parts = self.parts(cursor)
        if not parts:
            return
        one, sign, other, left, right = parts
        type_kind = cursor.type.get_canonical().kind
        if sign in RELATIONS:
            self.replace("relation", cursor, f"{one} {RELATIONS[sign]} {other}")
            if sign in ("<", ">"):
                self.replace("relation", cursor, f"{one} {'>=' if sign == '<' else '<='} {other}")
        elif sign in SUMS and type_kind in NUMBERS | {TypeKind.DEPENDENT}:
            self.replace("arithmetic", cursor, f"{one} {SUMS[sign]} {other}")
            self.replace("arithmetic", cursor, one)
            if sign in "+*" and type_kind in (TypeKind.LONG, TypeKind.ULONG):
                narrow = f"static_cast<{cursor.type.get_canonical().spelling}>(static_cast<int>({one} {sign} {other}))"
                self.replace("width", cursor, narrow)
        elif sign in ("&&", "||"):
            self.replace("logic", cursor, f"({one}) {'||' if sign == '&&' else '&&'} ({other})")
            self.replace("logic", cursor, f"bool({one})")
            self.replace("logic", cursor, f"bool({other})")

    def compound(self, cursor):
        parts = self.parts(cursor)
        swap = {"+=": ("-=", "="), "-=": ("+=",), "*=": ("+=",), "|=": ("=", "&="), "&=": ("=", "|="), "/=": ("*=",)}
        for sign in swap.get(parts[1], ()) if parts else ():
            self.replace("update", cursor, f"{parts[0]} {sign} {parts[2]}", counts=False)

    def call(self, cursor):
        text = self.reader.text(cursor)
        match = re.match(r"std::(ranges::)?(min|max)\b", text)
        if match:
            other = "max" if match.group(2) == "min" else "min"
            self.replace("bound", cursor, text[: match.start(2)] + other + text[match.end(2) :])
        arguments = [a for a in cursor.get_arguments() if a is not None]
        spans = [(a.extent.start.offset, a.extent.end.offset) for a in arguments]
        e = cursor.extent
        if match or any(b <= a for a, b in spans) or any(x[1] > y[0] for x, y in zip(spans, spans[1:])):
            return
        if spans and not (e.start.offset <= spans[0][0] and spans[-1][1] < e.end.offset):
            return
        if cursor.spelling.startswith("operator"):
            return
        for i, one in enumerate(arguments):
            for j in range(i + 1, len(arguments)):
                other = arguments[j]
                a, b = self.reader.text(one), self.reader.text(other)
                if a == b or a[:1] in '{["' or b[:1] in '{["' or stripped(one.type) != stripped(other.type):
                    continue
                is_number = one.type.get_canonical().kind in NUMBERS
                if is_object(one) != is_object(other) and not is_number:
                    continue
                counts = is_pure(a, b) and is_number
                edits = [(*spans[i], either(a, b, counts)), (*spans[j], either(b, a, counts))]
                was = self.reader.between(spans[i][0], spans[j][1])
                middle = self.reader.between(spans[i][1], spans[j][0])
                self.add("arguments", cursor, edits, was, b + middle + a)

    def condition(self, cursor):
        for child in cursor.get_children():
            before = self.reader.between(cursor.extent.start.offset, child.extent.start.offset)
            if re.fullmatch(r"if \(", before):
                was = self.reader.text(child)
                if child.kind not in (Kind.DECL_STMT, Kind.VAR_DECL) and ";" not in was and not DRAWS.search(was):
                    edit = (child.extent.start.offset, child.extent.end.offset, f"(({was}) ? !ACTS : ACTS)")
                    self.add("condition", child, [edit], f"if ({was})", f"if (!({was}))")
                    never = (child.extent.start.offset, child.extent.end.offset, f"(({was}) && !ACTS)")
                    self.add("condition", child, [never], f"if ({was})", "if (false)")
            return

    def choice(self, cursor):
        children = list(cursor.get_children())
        if len(children) == 3:
            one, yes, no = (self.reader.text(c) for c in children)
            self.replace("condition", cursor, yes, None)
            self.replace("condition", cursor, no, None)

    def statement(self, cursor):
        was, inner = self.reader.text(cursor), cursor
        while inner.kind == Kind.UNEXPOSED_EXPR:
            children = list(inner.get_children())
            if len(children) != 1:
                return
            inner = children[0]
        parts = self.parts(inner) if inner.kind == Kind.BINARY_OPERATOR else None
        assigns = parts and parts[1] == "="
        if not assigns and inner.kind not in (Kind.CALL_EXPR, Kind.COMPOUND_ASSIGNMENT_OPERATOR, Kind.UNARY_OPERATOR):
            return
        if was.startswith(("assert", "static_assert")) or DRAWS.search(was):
            return
        edit = (cursor.extent.start.offset, cursor.extent.end.offset, f"(ACTS ? void() : void({was}))")
        self.add("statement", cursor, [edit], was + ";", ";")

    def loop(self, cursor):
        *_, body = cursor.get_children()
        if body.kind == Kind.COMPOUND_STMT:
            at = body.extent.end.offset - 1
            head = self.reader.between(cursor.extent.start.offset, body.extent.start.offset)
            self.add("jump", cursor, [(at, at, "if (ACTS) break; ")], head + "{ ... }", head + "{ ...; break; }")

    def jump(self, cursor, becomes):
        edit = (cursor.extent.start.offset, cursor.extent.end.offset, f"if (ACTS) {becomes}; else continue")
        self.add("jump", cursor, [edit], "continue;", f"{becomes};")

    def name(self, cursor, parent):
        """Another one of the same type: the next field, enumerator, variable in sight."""
        was, to = self.reader.text(cursor), cursor.referenced
        if to is None or parent.kind in (Kind.CALL_EXPR, Kind.UNEXPOSED_EXPR) and to.kind in FUNCTIONS:
            return
        if not was.endswith(to.spelling) or not to.spelling:
            return
        front = was[: -len(to.spelling)]
        # A loaded number is compared; what is assigned to, or bound, must stay the variable itself.
        counts = is_pure(was) and cursor.type.get_canonical().kind in NUMBERS and parent.kind == Kind.UNEXPOSED_EXPR
        for other in self.others(to, cursor):
            self.replace("name", cursor, front + other, counts)

    def others(self, to, cursor):
        if to.kind == Kind.ENUM_CONSTANT_DECL:
            names = [c.spelling for c in to.semantic_parent.get_children() if c.kind == Kind.ENUM_CONSTANT_DECL]
        elif to.kind == Kind.FIELD_DECL:
            names = [c.spelling for c in to.semantic_parent.get_children()
                     if c.kind == Kind.FIELD_DECL and stripped(c.type) == stripped(to.type)]  # fmt: skip
        elif to.kind in (Kind.VAR_DECL, Kind.PARM_DECL) and any(c == to for c in self.scope):
            names = list(dict.fromkeys(c.spelling for c in self.scope if c.spelling and stripped(c.type) == stripped(to.type)))
        elif to.kind == Kind.VAR_DECL and re.match(r"k[A-Z]", to.spelling) and to.type.get_canonical().kind in INTEGERS:
            return (f"{to.spelling} + 1", f"{to.spelling} / 2", f"{to.spelling} * 2")
        else:
            return ()
        at = names.index(to.spelling) if to.spelling in names else 0
        near = names[at - 1 : at] + names[at + 1 : at + 2] if at else names[1:2]
        return [name for name in near if name and name != to.spelling]


def parse(index, root, name, text, flags=()):
    return index.parse(
        f"{root}/src/{name}", unsaved_files=[(f"{root}/src/{name}", text)],
        args=["-std=c++20", f"-I{root}/include", f"-I{root}/src", "-DNDEBUG", "-DSHADOWGRAPH_X86", "-fopenmp", "-w", *flags],
    )  # fmt: skip


def units(root, rooms):
    """The parsed sources: a unit for each folder, and for each body of kernels that instruction sets have."""
    index = Index.create()
    for folder in (folder for room in rooms for folder in ROOMS[room]):
        files = sorted(p for p in (root / folder).rglob("*.cc") if "/isa/" not in str(p))
        yield parse(index, root, f"all_of_{folder.replace('/', '_')}.cc", "".join(f'#include "{p}"\n' for p in files))
    for name in UNITS if "kernels" in rooms else ():
        yield parse(index, root, f"unit_{name}.cc", f'#include "kernels/isa/{name}.cc"\n', VECTORS)


def mutants(root, rooms):
    """Every slip of the rooms, in the order of the sources."""
    reader = Reader(root, rooms)
    for unit in units(root, rooms):
        reader.read(unit)
    every = []
    for file in sorted(reader.found):
        lines = reader.sources[file].decode().split("\n")
        for line, function, slip in sorted(reader.found[file].values(), key=lambda x: (x[2].edits, x[2].becomes)):
            every.append(Mutant(f"{reader.room_of(file)}.{slip.operator}", file, line, lines[line - 1].strip(), function, slip))
    return every
