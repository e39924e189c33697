//! Repositories of yum, dnf and zypper: `.repo` files → the sections whose address is wanted.

use super::absolute;
use crate::facts::YumRepo;
use crate::image::rootfs::RootFs;

const DIRECTORIES: [&str; 2] = ["etc/yum.repos.d", "etc/zypp/repos.d"];
/// Keys that give a repository's location (dnf.conf(5), "Repo options").
const ADDRESS_KEYS: [&str; 3] = ["baseurl", "mirrorlist", "metalink"];

/// Whether the content of a path is needed here.
pub(super) fn wants(path: &str) -> bool {
    // Wherever one is that a link in the directories leads to.
    path.ends_with(".repo")
}

/// Sections that are `is_wanted`, by file and in the file's order.
pub(super) fn load_repos(fs: &RootFs, is_wanted: impl Fn(&YumRepo) -> bool) -> Vec<YumRepo> {
    let mut repos = Vec::new();
    for directory in DIRECTORIES {
        for name in fs.list(directory).into_iter().filter(|name| name.ends_with(".repo")) {
            let path = format!("{directory}/{name}");
            let text = fs.text(&path).unwrap_or_default();
            let (wanted, other): (Vec<_>, Vec<_>) =
                parse_repos(&absolute(&path), &text).into_iter().partition(&is_wanted);
            repos.extend(wanted.into_iter().map(|repo| YumRepo { shared: !other.is_empty(), ..repo }));
        }
    }
    repos
}

/// Every section that has an address. Several addresses of one section are joined by spaces.
fn parse_repos(path: &str, text: &str) -> Vec<YumRepo> {
    let mut repos: Vec<YumRepo> = Vec::new();
    let mut key = String::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with(['#', ';'])) {
        if let Some(id) = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let (path, id) = (path.to_owned(), id.trim().to_owned());
            repos.push(YumRepo { path, id, url: String::new(), enabled: true, shared: false });
            key.clear();
            continue;
        }
        // An indented line goes on with the value of the line before.
        let value = match line.split_once('=') {
            Some((name, value)) if !line.starts_with([' ', '\t']) => {
                key = name.trim().to_ascii_lowercase();
                value.trim()
            }
            _ => line.trim(),
        };
        let Some(repo) = repos.last_mut() else { continue };
        if ADDRESS_KEYS.contains(&key.as_str()) && !value.is_empty() {
            if !repo.url.is_empty() {
                repo.url.push(' ');
            }
            repo.url.push_str(value);
        } else if key == "enabled" {
            repo.enabled = !["0", "no", "false", "off"].contains(&value.to_ascii_lowercase().as_str());
        }
    }
    repos.retain(|repo| !repo.url.is_empty());
    repos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_their_addresses() {
        let text = "[main]\nname=x\n\n# [off]\n[mlnx_ofed]\nname = Mellanox\nbaseurl=file:///opt/a\n  http://b/$basearch\nenabled=0\ngpgkey=http://c\n\n[doca]\nBaseURL = https://linux.mellanox.com/public/repo/doca/2.9.0/rhel9/x86_64/\nenabled=1\n";
        let repos = parse_repos("/etc/yum.repos.d/x.repo", text);
        let short: Vec<_> = repos.iter().map(|repo| (repo.id.as_str(), repo.url.as_str(), repo.enabled)).collect();
        assert_eq!(
            short,
            [
                ("mlnx_ofed", "file:///opt/a http://b/$basearch", false),
                ("doca", "https://linux.mellanox.com/public/repo/doca/2.9.0/rhel9/x86_64/", true),
            ]
        );
    }
}
