//! Which module may use which: data types at the bottom, the command line at the top.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Module → modules that it may use. `cli` may use all; a new module needs a line here.
const MAY_USE: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("versions", &[]),
    ("distro", &[]),
    ("nccl_settings", &[]),
    ("diagnosis", &["versions"]),
    ("reference", &[]),
    ("shell", &[]),
    ("remedy", &[]),
    ("suggest", &[]),
    ("signals", &[]),
    ("logs", &["diagnosis", "fabric", "nccl_settings", "versions"]),
    ("explain", &["checks", "diagnosis", "logs", "targets"]),
    ("docker", &["reference", "remedy", "shell"]),
    ("image", &["reference", "remedy"]),
    ("registry", &["docker", "image", "reference", "remedy"]),
    ("fabric", &["distro", "remedy"]),
    ("targets", &["fabric", "remedy", "suggest", "versions"]),
    ("facts", &["diagnosis", "distro", "fabric", "remedy"]),
    ("sysfs", &["facts"]),
    ("ffi", &["facts"]),
    ("agent", &["facts", "ffi", "signals", "sysfs"]),
    ("devices", &["agent", "fabric", "facts", "sysfs"]),
    ("loopback", &["devices", "diagnosis", "facts", "ffi", "sysfs"]),
    ("inspect", &["distro", "fabric", "facts", "image", "nccl_settings", "units", "versions"]),
    ("recipe", &["fabric", "reference", "remedy", "suggest", "targets", "versions"]),
    ("package_file", &["facts", "inspect"]),
    ("plan", &["distro", "fabric", "facts", "inspect", "package_file", "reference", "remedy"]),
    ("dockerfile", &["distro", "fabric", "inspect", "plan", "shell"]),
    ("diff", &["facts"]),
    (
        "checks",
        &[
            "diagnosis",
            "distro",
            "fabric",
            "facts",
            "image",
            "inspect",
            "nccl_settings",
            "plan",
            "recipe",
            "reference",
            "shell",
            "suggest",
            "targets",
            "units",
            "versions",
        ],
    ),
    (
        "launch",
        &["docker", "fabric", "facts", "inspect", "logs", "nccl_settings", "remedy", "shell", "sysfs", "targets"],
    ),
    ("job", &["docker", "fabric", "facts", "launch", "nccl_settings", "reference", "remedy", "shell", "targets"]),
    ("policy", &["checks", "remedy", "targets", "versions"]),
    (
        "report",
        &[
            "checks",
            "diagnosis",
            "diff",
            "explain",
            "facts",
            "logs",
            "policy",
            "recipe",
            "targets",
            "units",
            "versions",
        ],
    ),
    ("source", &["docker", "facts", "image", "inspect", "reference", "registry", "remedy"]),
    (
        "swap",
        &[
            "checks",
            "fabric",
            "facts",
            "image",
            "package_file",
            "plan",
            "recipe",
            "reference",
            "remedy",
            "shell",
            "source",
        ],
    ),
    (
        "build",
        &[
            "checks",
            "diagnosis",
            "diff",
            "docker",
            "dockerfile",
            "fabric",
            "facts",
            "image",
            "judge",
            "logs",
            "recipe",
            "reference",
            "remedy",
            "report",
            "source",
            "swap",
        ],
    ),
    ("judge", &["checks", "diagnosis", "fabric", "facts", "policy", "recipe", "report", "targets"]),
];

/// Crates that one module alone may use.
const ONLY_IN: &[(&str, &str)] = &[
    ("bollard", "docker"),
    ("clap", "cli"),
    ("indicatif", "cli"),
    ("oci_spec", "reference"),
    ("quick_junit", "report"),
    ("ureq", "registry"),
    ("rpm_version", "inspect"),
    ("libloading", "ffi"),
    ("libc", "agent"),
];

/// A file without its items under `#[cfg(test)]`, which may use anything. As rustfmt writes it, an item ends at the first line
/// with the attribute's indentation that closes it.
fn without_tests(text: &str) -> String {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut code = String::new();
    let mut inside = None;
    for line in text.lines() {
        match inside {
            None if line.trim() == "#[cfg(test)]" => inside = Some(indentation(line)),
            None => {
                code.push_str(line);
                code.push('\n');
            }
            Some(depth) => {
                let closes = line.ends_with([';', '}', ',']) && !line.trim_start().starts_with("#[");
                if closes && indentation(line) == depth {
                    inside = None;
                }
            }
        }
    }
    assert_eq!(inside, None, "an item under cfg(test) does not end:\n{text}");
    code
}

#[test]
fn only_tests_are_left_out() {
    let text = "use a;\n#[cfg(test)]\n#[path = \"x.rs\"]\nmod x;\nuse b;\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n\
                impl D {\n    #[cfg(test)]\n    fn e(\n        &self,\n    ) {\n    }\n    fn f() {}\n}\n";
    assert_eq!(without_tests(text), "use a;\nuse b;\nimpl D {\n    fn f() {}\n}\n");
}

/// Every file with its code.
fn files() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut todo = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, without_tests(&text)));
            }
        }
    }
    found
}

/// The top module of every file, with the file's code.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let top = |path: &Path| {
        let first = path.strip_prefix(&root).unwrap().components().next().unwrap();
        first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
    };
    files().into_iter().map(|(path, code)| (top(&path), code)).collect()
}

#[test]
fn imports_point_one_way() {
    let mut seen = BTreeSet::new();
    for (module, code) in sources() {
        if ["main", "lib", "cli"].contains(&module.as_str()) {
            continue;
        }
        let (_, allowed) =
            MAY_USE.iter().find(|(name, _)| *name == module).unwrap_or_else(|| panic!("{module} is not in the table"));
        for at in code.match_indices("crate::").map(|(at, found)| at + found.len()) {
            let used: String = code[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            assert!(used == module || allowed.contains(&used.as_str()), "{module} uses {used}");
        }
        seen.insert(module);
    }
    // The table has no module that is gone.
    assert_eq!(seen.len(), MAY_USE.len(), "{seen:?}");
}

/// Path of modules from the crate's root, such as `checks::run::nccl`, and the file's code.
fn modules() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeMap::new();
    for (path, code) in files() {
        let relative = path.strip_prefix(&root).unwrap().with_extension("");
        let parts: Vec<String> =
            relative.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        let parts = parts.strip_suffix(&["mod".to_owned()]).unwrap_or(&parts);
        // What a comment names is not used.
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n"));
        found.insert(parts.join("::"), code.collect());
    }
    found
}

/// The paths that a module's code names, from the crate's root.
fn named_paths(module: &str, code: &str) -> BTreeSet<String> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut found = BTreeSet::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(is_path) {
                continue;
            }
            let mut from: Vec<&str> = if start == "crate::" { Vec::new() } else { module.split("::").collect() };
            let text: String = code[at..].chars().take_while(|c| is_path(*c)).collect();
            let mut parts: Vec<&str> = text.trim_end_matches(':').split("::").collect();
            while let Some(first @ ("crate" | "super" | "self")) = parts.first().copied() {
                if first == "super" {
                    from.pop();
                }
                parts.remove(0);
            }
            // The parts of `use a::{b, c}`, whose own lists do not matter: what is in them is below `b` or `c`.
            let list = code[at + text.len()..].strip_prefix('{').filter(|_| text.ends_with("::"));
            let members = list.map_or("", |list| &list[..list.find("};").unwrap_or(0)]);
            let members = members.split(',').map(|member| member.trim().split("::").next().unwrap_or_default());
            let base = [from, parts].concat().join("::");
            found.extend(members.filter(|member| !member.is_empty()).map(|member| format!("{base}::{member}")));
            found.insert(base);
        }
    }
    found
}

/// Modules that lie side by side in a folder do not use each other in a circle. What the folder's own `mod.rs` has is for all.
#[test]
fn siblings_use_each_other_one_way() {
    let modules = modules();
    // Folder → module in it → modules in it that it uses.
    let mut used: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, code) in &modules {
        for path in named_paths(module, code) {
            let (from, to): (Vec<&str>, Vec<&str>) = (module.split("::").collect(), path.split("::").collect());
            let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
            let (Some(one), Some(other)) = (from.get(common), to.get(common)) else { continue };
            let folder = from[..common].join("::");
            let full = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}::{name}") };
            if modules.contains_key(&full(other)) {
                let uses = used.entry(folder.clone()).or_default().entry((*one).to_owned()).or_default();
                uses.insert((*other).to_owned());
            }
        }
    }
    assert!(used["checks"]["run"].contains("image") && used["inspect"]["verbs"].contains("names"), "{used:?}");
    let mut circles = Vec::new();
    for (folder, mut uses) in used {
        // What uses nothing that is left is in no circle.
        loop {
            let left: BTreeSet<String> = uses.keys().cloned().collect();
            uses.values_mut().for_each(|used| used.retain(|module| left.contains(module)));
            let before = uses.len();
            uses.retain(|_, used| !used.is_empty());
            if uses.len() == before {
                break;
            }
        }
        if !uses.is_empty() {
            circles.push(format!("{folder}: {uses:?}"));
        }
    }
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn libraries_stay_where_they_belong() {
    for (module, code) in sources() {
        for (library, owner) in ONLY_IN {
            let uses =
                [format!("use {library}::"), format!(" {library}::")].iter().any(|text| code.contains(text.as_str()));
            assert!(!uses || module == *owner, "{module} uses {library}");
        }
        if ![
            "agent", "cli", "devices", "docker", "ffi", "image", "launch", "loopback", "registry", "signals", "source",
            "swap", "sysfs", "main", "lib",
        ]
        .contains(&module.as_str())
        {
            for io in [
                "std::fs",
                "std::net::Tcp",
                "std::net::Udp",
                "std::net::ToSocket",
                "unix::net",
                "std::process",
                "std::env::",
            ] {
                assert!(!code.contains(io), "{module} does I/O: {io}");
            }
        }
    }
}
