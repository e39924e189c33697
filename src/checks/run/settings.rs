//! NCCL's settings as the ranks had them, with who set each.

use super::{Judged, RunSubject};
use crate::checks::Outcome;
use crate::diagnosis::Fault;
use crate::facts::run::{EnvironmentFacts, Origin, RunFacts, Variable};
use crate::nccl_settings::{parse_conf, parse_number};

/// Who set a variable, for people.
pub(super) fn origin_word(origin: Origin) -> &'static str {
    match origin {
        Origin::Image => "image",
        Origin::Preset => "target",
        Origin::User => "user",
        Origin::Run => "this run",
    }
}

/// A setting of NCCL's and where its value comes from.
pub struct InEffect {
    pub name: String,
    pub value: String,
    /// `image`, `target`, `/etc/nccl.conf`; with what it replaced.
    pub from: String,
    /// Who has to change the setting.
    pub blame: Fault,
}

impl InEffect {
    /// `NCCL_IB_DISABLE=1 (image)`
    pub fn say(&self) -> String {
        format!("{}={} ({})", self.name, self.value, self.from)
    }

    /// Whether the setting keeps NCCL from using RDMA.
    pub(super) fn switches_rdma_off(&self) -> bool {
        switches_off(&self.name, &self.value)
    }

    /// How to let NCCL use RDMA again.
    pub(super) fn take_out(&self) -> String {
        let harmless = if self.name == "NCCL_IB_DISABLE" { "0" } else { "" };
        match self.blame {
            _ if self.from.starts_with('/') => format!("RUN sed -i '/^{}=/d' {}", self.name, self.from),
            Fault::Image => format!("ENV {}={harmless}", self.name),
            Fault::Host | Fault::Launch | Fault::Job => format!("--env {}={harmless}", self.name),
        }
    }
}

/// The `NCCL_*` settings that the ranks had, by name: variables first, since they win over files.
pub fn in_effect(run: &RunFacts) -> Vec<InEffect> {
    let set_by = |name: &str| run.launch.variables.iter().find(|variable| variable.name == name);
    let from = |variable: &Variable| {
        let replaced = variable.replaced.iter().map(|(origin, value)| format!("; {}: {value}", origin_word(*origin)));
        format!("{}{}", origin_word(variable.origin), replaced.collect::<String>())
    };
    let variable = |name: &str, value: &str| {
        let set = set_by(name).filter(|set| set.value == value);
        InEffect {
            name: name.to_owned(),
            value: value.to_owned(),
            from: set.map_or("container".to_owned(), from),
            blame: match set.map(|set| set.origin) {
                Some(Origin::Image) => Fault::Image,
                Some(Origin::Preset | Origin::User | Origin::Run) | None => Fault::Job,
            },
        }
    };
    let mut all: Vec<InEffect> = match &run.environment {
        Some(environment) => environment.variables.iter().map(|(name, value)| variable(name, value)).collect(),
        None => run.launch.variables.iter().map(|set| variable(&set.name, &set.value)).collect(),
    };
    all.retain(|setting| setting.name.starts_with("NCCL_"));
    for (path, text) in run.environment.iter().flat_map(|environment| &environment.nccl_files) {
        for (name, value) in parse_conf(text) {
            if all.iter().all(|known| known.name != name) {
                all.push(InEffect { name, value, from: path.clone(), blame: Fault::Image });
            }
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Whether a setting keeps NCCL from RDMA.
fn switches_off(name: &str, value: &str) -> bool {
    match name {
        "NCCL_IB_DISABLE" => parse_number(value).is_some_and(|value| value != 0),
        "NCCL_NET" => value.eq_ignore_ascii_case("socket"),
        _ => false,
    }
}

pub(super) fn settings_in_effect(subject: &RunSubject<'_>) -> Judged {
    let run = subject.run;
    let environment = subject.environment()?;
    let all = in_effect(run);
    let lines = all.iter().map(InEffect::say);
    let mut wrong: Vec<(String, Fault, String)> = Vec::new();
    for variable in &run.launch.variables {
        for (origin, value) in &variable.replaced {
            if *origin == Origin::Image && switches_off(&variable.name, value) {
                wrong.push((
                    format!(
                        "the image sets {}={value}, which switches RDMA off; {} overrode it with {:?} for this run",
                        variable.name,
                        origin_word(variable.origin),
                        variable.value
                    ),
                    Fault::Image,
                    format!("ENV {}=   # a job outside this run gets the image's value", variable.name),
                ));
            }
        }
    }
    for setting in all.iter().filter(|setting| setting.switches_rdma_off()) {
        wrong.push((format!("{} switches RDMA off", setting.say()), setting.blame, setting.take_out()));
    }
    for variable in lost(run, environment) {
        wrong.push((
            format!("{}={} was set for the container, but its processes lack it", variable.name, variable.value),
            Fault::Image,
            "check what the image's entrypoint unsets".to_owned(),
        ));
    }
    let Some((first, blame, remedy)) = wrong.first() else {
        return Ok(Outcome::pass(format!("{} of NCCL in effect", super::count(all.len(), "setting"))).evidence(lines));
    };
    let more = wrong.iter().skip(1).map(|(summary, _, _)| summary.clone());
    Ok(Outcome::warn(first.clone()).evidence(more.chain(lines)).remedy(remedy.as_str()).blame(*blame))
}

/// Variables of NCCL that the container was given and that its processes have not, or otherwise.
fn lost<'a>(run: &'a RunFacts, environment: &EnvironmentFacts) -> Vec<&'a Variable> {
    let given = run.launch.variables.iter().filter(|variable| variable.name.starts_with("NCCL_"));
    given.filter(|variable| environment.variables.get(&variable.name) != Some(&variable.value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Status::*;
    use crate::checks::run::testing::*;
    use crate::diagnosis::Fault::*;

    #[test]
    fn every_setting_is_listed_with_its_origin() {
        let words = ["5 settings", "NCCL_IB_HCA=erdma (target)", "NCCL_DEBUG=INFO (this run)"];
        expect(&found(&good_run(), "settings-in-effect"), Pass, None, &words);
        let mut run = good_run();
        run.environment = None;
        expect(&found(&run, "settings-in-effect"), Unknown, None, &[]);
        assert_eq!(in_effect(&run).len(), 5);
    }

    #[test]
    fn files_count_where_no_variable_does() {
        let mut run = good_run();
        let files = &mut run.environment.as_mut().unwrap().nccl_files;
        files.insert("/etc/nccl.conf".into(), "NCCL_IB_DISABLE=1\nNCCL_DEBUG=WARN\n".into());
        let words = ["NCCL_IB_DISABLE=1 (/etc/nccl.conf) switches RDMA off", "NCCL_DEBUG=INFO (this run)", "sed -i"];
        expect(&found(&run, "settings-in-effect"), Warn, Some(Image), &words);
    }

    #[test]
    fn what_the_user_switched_off() {
        let mut run = good_run();
        run.launch.variables.push(variable("NCCL_NET", "Socket", Origin::User));
        run.environment.as_mut().unwrap().variables.insert("NCCL_NET".into(), "Socket".into());
        expect(&found(&run, "settings-in-effect"), Warn, Some(Job), &["NCCL_NET=Socket (user)"]);
    }

    #[test]
    fn what_did_not_arrive() {
        let mut run = good_run();
        run.environment.as_mut().unwrap().variables.remove("NCCL_IB_HCA");
        expect(&found(&run, "settings-in-effect"), Warn, Some(Image), &["NCCL_IB_HCA=erdma was set"]);
    }
}
