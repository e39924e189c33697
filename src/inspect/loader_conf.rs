//! `ld.so.conf` with its includes → directories in ldconfig's order (glibc `elf/ldconfig.c`, `parse_conf`).

use crate::image::rootfs::RootFs;

const CONF: &str = "etc/ld.so.conf";
/// Includes nest; a loop of includes ends.
const MAX_INCLUDE_DEPTH: usize = 8;
/// Files that are read in all: with a few files that include each other, depth alone does not bound the work.
const MAX_FILES: usize = 256;

/// One directory and the file that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigDirectory {
    /// Absolute, as written.
    pub path: String,
    /// Absolute path of the file.
    pub from: String,
}

/// Whether the content of a path is needed here.
pub(super) fn wants(path: &str) -> bool {
    path == CONF || (path.starts_with("etc/ld.so.conf.d/") && path.ends_with(".conf"))
}

/// The directories in order, and the problems met while reading them.
pub(super) fn load_conf(fs: &RootFs) -> (Vec<ConfigDirectory>, Vec<String>) {
    let mut reading = Reading { fs, files: 0, directories: Vec::new(), problems: Vec::new() };
    if fs.exists(CONF) {
        reading.read(&format!("/{CONF}"), 0);
    }
    (reading.directories, reading.problems)
}

struct Reading<'a> {
    fs: &'a RootFs,
    files: usize,
    directories: Vec<ConfigDirectory>,
    problems: Vec<String>,
}

impl Reading<'_> {
    fn read(&mut self, path: &str, depth: usize) {
        self.files += 1;
        if depth > MAX_INCLUDE_DEPTH || self.files > MAX_FILES {
            if self.problems.len() < MAX_INCLUDE_DEPTH {
                self.problems.push(format!("{path} is included too deep and was not read"));
            }
            return;
        }
        let Some(text) = self.fs.text(path) else {
            if self.fs.exists(path) {
                self.problems.push(format!("{path} is included from ld.so.conf and was not read"));
            }
            return;
        };
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            match line.strip_prefix("include").filter(|rest| rest.starts_with(char::is_whitespace)) {
                Some(patterns) => {
                    for pattern in patterns.split_whitespace() {
                        for file in glob(self.fs, pattern, path) {
                            self.read(&file, depth + 1);
                        }
                    }
                }
                // `/dir=libc6` names a kind of library; only the directory counts.
                None if line.starts_with('/') => {
                    let directory = line.split('=').next().unwrap_or(line).trim_end();
                    let directory = if directory == "/" { directory } else { directory.trim_end_matches('/') };
                    let entry = ConfigDirectory { path: directory.to_owned(), from: path.to_owned() };
                    if !self.directories.iter().any(|known| known.path == entry.path) {
                        self.directories.push(entry);
                    }
                }
                None => {}
            }
        }
    }
}

/// Files of one directory that match a glob pattern, sorted as by glob(3); relative patterns start in the directory of
/// the file that contains them.
fn glob(fs: &RootFs, pattern: &str, including: &str) -> Vec<String> {
    let here = including.rsplit_once('/').map_or("", |(directory, _)| directory);
    let pattern = if pattern.starts_with('/') { pattern.to_owned() } else { format!("{here}/{pattern}") };
    let (directory, name) = pattern.rsplit_once('/').unwrap_or(("", &pattern));
    if !name.contains(['*', '?']) {
        return vec![pattern.clone()];
    }
    let hidden = |candidate: &&str| candidate.starts_with('.') && !name.starts_with('.');
    let names = fs.list(directory).into_iter().filter(|candidate| !hidden(candidate));
    names.filter(|candidate| matches(name, candidate)).map(|candidate| format!("{directory}/{candidate}")).collect()
}

/// Whether a name fits a pattern of `*`, `?` and plain characters.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // The last star seen, and how much of the name it has taken.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            p = at + 1;
            n = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_fixture::Fixture;

    #[test]
    fn patterns() {
        for (pattern, name, fits) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("a*b*.conf", "axxbyy.conf", true),
            ("a?.conf", "a.conf", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn order_includes_loops_and_comments() {
        let mut fixture = Fixture::good();
        fixture.file(
            "etc/ld.so.conf",
            "/first # one\ninclude ld.so.conf.d/*.conf /opt/hidden.conf\n/last=libc6\nhwcap 1 x\n",
        );
        fixture.file("etc/ld.so.conf.d/a.conf", "  /a/\ninclude b*.conf\ninclude /etc/ld.so.conf\n/first\n");
        fixture.file("etc/ld.so.conf.d/b1.conf", "/b\n");
        fixture.file("opt/hidden.conf", "/hidden\n");
        fixture.remove("etc/ld.so.conf.d/000_cuda.conf").remove("etc/ld.so.conf.d/zz.conf");
        let image = fixture.image();
        let (directories, problems) = load_conf(&image.rootfs);
        let paths: Vec<&str> = directories.iter().map(|directory| directory.path.as_str()).collect();
        assert_eq!(paths, ["/first", "/a", "/b", "/last"]);
        assert_eq!(directories[2].from, "/etc/ld.so.conf.d/b1.conf");
        assert!(problems.iter().any(|problem| problem.starts_with("/opt/hidden.conf")), "{problems:?}");
    }
}
