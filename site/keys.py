"""The page of configuration keys, made of the configuration's JSON schema."""

from typing import Any

from tables import cell, code, table

_Schema = dict[str, Any]


class _Page:
    """Headings and tables in the order in which keys lead to them."""

    def __init__(self, schema: _Schema) -> None:
        self.definitions: dict[str, _Schema] = schema["$defs"]
        self.sections: list[str] = []
        self.written: dict[str, str] = {}
        """Where each definition of a table of keys stands already, by its name."""

    def section(self, path: str, schema: _Schema) -> None:
        """A heading with the keys below `path`, and sections for the tables among them."""
        rows: list[list[str]] = []
        below: list[tuple[str, _Schema]] = []
        for key, value in sorted(schema.get("properties", {}).items()):
            rows.append([code(key), self.what(value), self.type_of(value), _default(value)])
            below += [(f"{path}.{key}{suffix}", part) for suffix, part in self.tables_in(value)]
        text = f"## `{path}`\n\n{_prose(schema)}"
        self.sections.append(text + (table(["key", "what it is", "type", "default"], rows) if rows else ""))
        for name, part in below:
            self.enter(name, part)

    def enter(self, path: str, schema: _Schema) -> None:
        """A section for a definition, unless it has one; a choice of tables has one for each."""
        name = _name_of(schema)
        if name in self.written:
            return
        if name:
            self.written[name] = path
        resolved = self.resolve(schema)
        if "properties" in resolved:
            self.section(path, resolved)
            return
        tables = [part for part in map(self.resolve, _choices(resolved)) if "properties" in part]
        if len(tables) > 1 and resolved.get("description"):
            self.sections.append(f"## `{path}`\n\n{_prose(resolved)}")
        for part in tables:
            self.section(f"{path}{_tag(part)}", part)

    def resolve(self, schema: _Schema) -> _Schema:
        return self.definitions[name] if (name := _name_of(schema)) else schema

    def tables_in(self, schema: _Schema) -> list[tuple[str, _Schema]]:
        """The definitions that a value may be a table of, each with what a path to it goes on with."""
        tables: list[tuple[str, _Schema]] = []
        for part in _choices(schema) or [schema]:
            if part.get("type") == "array" or "items" in part:
                tables += [(f"[]{suffix}", inner) for suffix, inner in self.tables_in(part.get("items", {}))]
            elif isinstance(part.get("additionalProperties"), dict):
                tables += [(f".NAME{suffix}", inner) for suffix, inner in self.tables_in(part["additionalProperties"])]
            elif self.is_table(part):
                tables.append(("", part))
        return tables

    def is_table(self, schema: _Schema) -> bool:
        resolved = self.resolve(schema)
        return "properties" in resolved or any(self.is_table(part) for part in _choices(resolved))

    def what(self, schema: _Schema) -> str:
        """What a key is, by its own text or that of its definition; choices with theirs."""
        own = schema.get("description") or self.resolve(schema).get("description", "")
        return cell(own)

    def type_of(self, schema: _Schema) -> str:
        return ", ".join(dict.fromkeys(self.types(schema)))

    def types(self, schema: _Schema) -> list[str]:
        name, resolved = _name_of(schema), self.resolve(schema)
        if name == "Bytes":
            return ["size"]
        if self.is_table(schema):
            return ["table"]
        if "const" in resolved:
            return [code(resolved["const"])]
        if "enum" in resolved:
            return [code(value) for value in resolved["enum"]]
        if choices := _choices(resolved):
            return [word for part in choices for word in self.types(part) if word != "null"]
        kinds = resolved.get("type", [])
        words = [kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]
        if "array" in words and "items" in resolved:
            return [f"list of {self.type_of(resolved['items'])}"]
        return ["table" if word == "object" else word for word in words]


def page(schema: _Schema) -> str:
    """All keys by the path that `--set` takes, with type, meaning and default."""
    made = _Page(schema)
    for key, part in schema["properties"].items():
        made.enter(key, part)
    begin = (
        "# Configuration keys\n\nEvery key that `--set KEY=VALUE`, `SYSTEM{KEY=VALUE}` and preset files take. "
        "[Configuration](../configuration.md) explains the important ones. "
        "`pagelab schema` prints the same as a JSON schema.\n\n"
        "A size is a number of bytes, or a text such as `32KiB`. `[]` stands for each entry of a list; layers go by "
        "their names: `system.layers.guest.page_size`. A table that several keys may hold is described once.\n\n"
    )
    return begin + "".join(made.sections)


def _name_of(schema: _Schema) -> str:
    return str(schema.get("$ref", "")).removeprefix("#/$defs/")


def _choices(schema: _Schema) -> list[_Schema]:
    return [*schema.get("oneOf", []), *schema.get("anyOf", [])]


def _tag(schema: _Schema) -> str:
    """What tells a table from the others that may stand in its place: `{kind = "radix"}`."""
    tags = [f' {{ {key} = "{value["const"]}" }}' for key, value in schema["properties"].items() if "const" in value]
    return "".join(tags)


def _prose(schema: _Schema) -> str:
    words = cell(schema.get("description", ""))
    return f"{words[:1].upper()}{words[1:]}\n\n" if words else ""


def _default(schema: _Schema) -> str:
    if "default" not in schema:
        return ""
    value = schema["default"]
    if value is None:
        return "none"
    if isinstance(value, dict | list):
        return "none" if not value else "as below" if isinstance(value, dict) else code(str(value).replace("'", '"'))
    return code(str(value).lower() if isinstance(value, bool) else value)
