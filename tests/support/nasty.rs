// For the tests of src/job, too, so no `//!`.

/// Arguments that every kind of quoting may get wrong.
pub const NASTY: [&str; 22] = [
    "prog",
    "a b",
    "",
    "it's",
    "\"q\"",
    "$HOME",
    "$(id)",
    "$$(X) $$$",
    "`id`",
    "line\nbreak",
    "tab\t",
    "\u{e9} \u{6f22}",
    "\\",
    "\\n",
    "#x",
    "a: b",
    "yes",
    "-x",
    "*",
    "{{ .Values.image }}",
    "a;b|c&d!~",
    "\u{85}\u{2028}\u{1f680}",
];
