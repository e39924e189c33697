//! Who a container belongs to: labels that say which process launched it, and whether that process still lives.
//!
//! Input: `/proc` below a root, which is `/` outside of tests. Output: labels; and of labels, whether a container may go.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The run; every container of this program has it.
pub const RUN_LABEL: &str = "rdmaprep.run";
/// The container runs the agent.
pub const AGENT_LABEL: &str = "rdmaprep.agent";
const PID_LABEL: &str = "rdmaprep.pid";
const PID_NAMESPACE_LABEL: &str = "rdmaprep.pid-namespace";
const STARTED_LABEL: &str = "rdmaprep.started";
const BOOT_LABEL: &str = "rdmaprep.boot";

/// A process, so that no later one is taken for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    /// `pid:[4026531836]`: what the number is a number in.
    pub pid_namespace: String,
    /// When it was started, in clock ticks since the boot (proc(5), `stat`, field 22).
    pub started: String,
    /// `/proc/sys/kernel/random/boot_id`
    pub boot: String,
}

/// Whether a container's run is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Nobody waits for it any more.
    Orphan,
    /// Somebody does, or may; why, in words.
    Kept(String),
}

impl Owner {
    /// The process `pid` as `/proc` below `root` has it; fields that it does not say are empty.
    pub fn load(root: &Path, pid: u32) -> Owner {
        let process = root.join("proc").join(pid.to_string());
        let namespace = fs::read_link(process.join("ns/pid"));
        let boot = fs::read_to_string(root.join("proc/sys/kernel/random/boot_id"));
        Owner {
            pid,
            pid_namespace: namespace.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
            started: fs::read_to_string(process.join("stat"))
                .ok()
                .and_then(|stat| start_time(&stat))
                .unwrap_or_default(),
            boot: boot.map(|text| text.trim().to_owned()).unwrap_or_default(),
        }
    }

    /// The labels of a container of this process.
    pub fn labels(&self, run: &str) -> BTreeMap<String, String> {
        let pid = self.pid.to_string();
        let labels = [
            (RUN_LABEL, run),
            (AGENT_LABEL, "1"),
            (PID_LABEL, &pid),
            (PID_NAMESPACE_LABEL, &self.pid_namespace),
            (STARTED_LABEL, &self.started),
            (BOOT_LABEL, &self.boot),
        ];
        labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }
}

/// The field behind the name, which may hold spaces and parentheses.
fn start_time(stat: &str) -> Option<String> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

/// Judges a container by its labels. `asking` is this process; `alive` loads the process of a number of this host.
///
/// When in doubt, the container is kept: a running one may belong to another machine's run.
pub fn fate(labels: &BTreeMap<String, String>, is_running: bool, asking: &Owner, alive: impl Fn(u32) -> Owner) -> Fate {
    let label = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
    let Ok(pid) = label(PID_LABEL).parse::<u32>() else {
        return Fate::Orphan;
    };
    let is_here = label(BOOT_LABEL) == asking.boot && label(PID_NAMESPACE_LABEL) == asking.pid_namespace;
    if !is_here || asking.boot.is_empty() {
        return match is_running {
            true => Fate::Kept("it is running, and was launched elsewhere or before a restart".to_owned()),
            false => Fate::Orphan,
        };
    }
    let now = alive(pid);
    match !now.started.is_empty() && now.started == label(STARTED_LABEL) {
        true => Fate::Kept(format!("process {pid}, which launched it, is alive")),
        false => Fate::Orphan,
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::tests::FakeHost;
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_number() {
        let fake = FakeHost::new();
        fake.file("proc/sys/kernel/random/boot_id", "b-1\n").link("proc/7/ns/pid", "pid:[1]");
        fake.file("proc/7/stat", "7 (a) b (x) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2\n");
        let owner = Owner::load(fake.dir.path(), 7);
        let expected = Owner { pid: 7, pid_namespace: "pid:[1]".into(), started: "987654".into(), boot: "b-1".into() };
        assert_eq!(owner, expected);
        let gone = Owner::load(fake.dir.path(), 8);
        assert_eq!((gone.started.as_str(), gone.boot.as_str()), ("", "b-1"));

        let asking = Owner { pid: 99, ..owner.clone() };
        let alive = |pid| Owner::load(fake.dir.path(), pid);
        let labels = owner.labels("r1");
        assert_eq!((labels[RUN_LABEL].as_str(), labels[AGENT_LABEL].as_str()), ("r1", "1"));
        let judge = |change: &dyn Fn(&mut Owner), running| {
            let mut owner = owner.clone();
            change(&mut owner);
            fate(&owner.labels("r1"), running, &asking, alive)
        };
        assert!(matches!(judge(&|_| {}, true), Fate::Kept(_)));
        assert!(matches!(judge(&|_| {}, false), Fate::Kept(_)));
        // The number is another process's now, or nobody's.
        assert_eq!(judge(&|owner| owner.started = "1".into(), true), Fate::Orphan);
        assert_eq!(judge(&|owner| owner.pid = 8, true), Fate::Orphan);
        // Another machine's, or another container's.
        for change in [&(|owner: &mut Owner| owner.boot = "b-2".into()) as &dyn Fn(&mut Owner), &|owner| {
            owner.pid_namespace = "pid:[2]".into()
        }] {
            assert!(matches!(judge(change, true), Fate::Kept(_)));
            assert_eq!(judge(change, false), Fate::Orphan);
        }
        let no_labels = BTreeMap::from([(RUN_LABEL.to_owned(), "r1".to_owned())]);
        assert_eq!(fate(&no_labels, true, &asking, alive), Fate::Orphan);
    }

    #[test]
    fn this_process_is_alive() {
        let own = Owner::load(Path::new("/"), std::process::id());
        assert!(!own.boot.is_empty() && !own.started.is_empty() && own.pid_namespace.starts_with("pid:["), "{own:?}");
        let load = |pid| Owner::load(Path::new("/"), pid);
        assert!(matches!(fate(&own.labels("r"), true, &own, load), Fate::Kept(_)));
    }
}
