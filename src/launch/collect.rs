//! The lines of a container's output → what the run adds up to.
//!
//! Lines that are not messages come from the image's own entrypoint, or are the last output of something that failed: the
//! last of them are kept.

use crate::facts::run::{
    AgentEnding, AgentMessage, AgentPlan, Ending, LaunchFacts, Phase, RankFacts, RunFacts, RunTime,
};
use std::collections::VecDeque;

/// Number of kept lines that are not messages.
const KEPT_LINES: usize = 20;
/// Characters that are kept of such a line.
const KEPT_CHARS: usize = 1000;

/// Takes the messages of one run.
pub struct Collector {
    facts: RunFacts,
    /// The agent's last message.
    finished: Option<AgentEnding>,
    other_lines: VecDeque<String>,
}

impl Collector {
    /// `host_driver`: version of this host's GPU driver, where it is known.
    pub fn new(launch: LaunchFacts, plan: &AgentPlan, host_driver: Option<String>) -> Collector {
        Collector {
            facts: RunFacts {
                launch,
                collective: plan.collective.clone(),
                planted: plan.plant.clone(),
                agent_version: None,
                hostname: None,
                environment: None,
                gpus: None,
                verbs: None,
                ranks: Vec::new(),
                rows: Vec::new(),
                failures: Vec::new(),
                counters: Vec::new(),
                evidence: None,
                host_driver,
                ending: Ending::TotalTimeout,
                time: RunTime::default(),
            },
            finished: None,
            other_lines: VecDeque::new(),
        }
    }

    /// Takes one line; gives the message that it is.
    pub fn take_line(&mut self, line: &str) -> Option<AgentMessage> {
        let is_message = line.starts_with(r#"{"message":"#);
        let message = if is_message { serde_json::from_str::<AgentMessage>(line).ok() } else { None };
        match &message {
            Some(message) => self.take(message.clone()),
            None => {
                if self.other_lines.len() == KEPT_LINES {
                    self.other_lines.pop_front();
                }
                self.other_lines.push_back(line.chars().take(KEPT_CHARS).collect());
            }
        }
        message
    }

    fn take(&mut self, message: AgentMessage) {
        let facts = &mut self.facts;
        match message {
            AgentMessage::Hello { version, hostname, .. } => {
                (facts.agent_version, facts.hostname) = (Some(version), Some(hostname));
            }
            AgentMessage::Environment(environment) => facts.environment = Some(environment),
            AgentMessage::Gpus(gpus) => facts.gpus = Some(gpus),
            AgentMessage::Verbs(verbs) => facts.verbs = Some(verbs),
            AgentMessage::Started(start) => facts.ranks.push(RankFacts {
                rank: start.rank,
                pid: start.pid,
                gpu: start.gpu,
                host: facts.hostname.clone(),
                host_id: start.host_id,
                nccl: None,
                nccl_version_code: None,
                phase: Phase::Libraries,
                log: String::new(),
                output: String::new(),
            }),
            AgentMessage::Library { rank, nccl, nccl_version_code } => {
                self.rank(rank, |rank| {
                    (rank.nccl, rank.nccl_version_code) = (Some(nccl), Some(nccl_version_code));
                });
            }
            AgentMessage::Phase { rank, phase } => self.rank(rank, |rank| rank.phase = phase),
            AgentMessage::Reduced { max_bytes } => facts.collective.max_bytes = max_bytes,
            AgentMessage::Row(row) => facts.rows.push(row),
            AgentMessage::Failure(failure) => facts.failures.push(failure),
            AgentMessage::Log { rank, text, .. } => self.rank(rank, |rank| rank.log = text),
            AgentMessage::Output { rank, text } => self.rank(rank, |rank| rank.output = text),
            AgentMessage::Counters { deltas } => facts.counters = deltas,
            AgentMessage::Finished { ending } => self.finished = Some(ending),
        }
    }

    fn rank(&mut self, number: u32, change: impl FnOnce(&mut RankFacts)) {
        if let Some(rank) = self.facts.ranks.iter_mut().find(|rank| rank.rank == number) {
            change(rank);
        }
    }

    /// Whether the agent has said its last word.
    pub fn is_finished(&self) -> bool {
        self.finished.is_some()
    }

    /// The last lines that were no messages.
    pub fn other_lines(&self) -> Vec<String> {
        self.other_lines.iter().cloned().collect()
    }

    /// Ends the run: as the agent said, else as seen from outside.
    ///
    /// Where nobody says how, the container's time was over.
    pub fn finish(mut self, outside: Option<Ending>, time: RunTime) -> RunFacts {
        self.facts.ending = match (self.finished, outside) {
            (Some(ending), _) => Ending::Agent { ending },
            (None, outside) => outside.unwrap_or(Ending::TotalTimeout),
        };
        self.facts.time = time;
        self.facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::run::{
        Collective, DataType, Failure, GpuSelection, LoadedLibrary, PROTOCOL, RankFailure, RankStart,
    };

    fn collector() -> Collector {
        let collective = Collective {
            min_bytes: 8,
            max_bytes: 1024,
            step_factor: 2,
            step_bytes: 0,
            iterations: 1,
            warmup: 1,
            data_types: vec![DataType::Float],
            check: true,
        };
        let plan = AgentPlan {
            protocol: PROTOCOL,
            directory: String::new(),
            gpus: GpuSelection::All,
            ranks_per_gpu: 1,
            nccl: None,
            collective,
            phase_timeout_ms: 1,
            total_timeout_ms: 1,
            plant: None,
        };
        Collector::new(LaunchFacts::default(), &plan, None)
    }

    fn say(collector: &mut Collector, message: &AgentMessage) {
        assert!(collector.take_line(&serde_json::to_string(message).unwrap()).is_some());
    }

    #[test]
    fn messages_add_up_and_banners_stay_out() {
        let mut collector = collector();
        assert_eq!(collector.take_line("== PyTorch =="), None);
        assert_eq!(collector.take_line(r#"{"message":"no such message"}"#), None);
        let start = RankStart { rank: 1, pid: 9, gpu: 0, host_id: Some("a".into()) };
        say(&mut collector, &AgentMessage::Started(start));
        let nccl = LoadedLibrary { asked: "libnccl.so.2".into(), path: "/x".into() };
        say(&mut collector, &AgentMessage::Library { rank: 1, nccl, nccl_version_code: 22105 });
        say(&mut collector, &AgentMessage::Phase { rank: 1, phase: Phase::Init });
        say(&mut collector, &AgentMessage::Phase { rank: 7, phase: Phase::Init });
        say(&mut collector, &AgentMessage::Reduced { max_bytes: 512 });
        let failure = RankFailure { rank: 1, phase: Phase::Init, failure: Failure::Exit { code: 3 } };
        say(&mut collector, &AgentMessage::Failure(failure.clone()));
        say(&mut collector, &AgentMessage::Log { rank: 1, text: "NCCL INFO x".into(), omitted_bytes: 0 });
        assert_eq!((collector.is_finished(), collector.other_lines().len()), (false, 2));
        say(&mut collector, &AgentMessage::Finished { ending: AgentEnding::Failed });
        let facts = collector.finish(Some(Ending::TotalTimeout), RunTime::default());
        assert_eq!(facts.ending, Ending::Agent { ending: AgentEnding::Failed });
        assert_eq!((facts.collective.max_bytes, facts.failures), (512, vec![failure]));
        let rank = &facts.ranks[0];
        assert_eq!((rank.nccl_version_code, rank.phase, rank.log.as_str()), (Some(22105), Phase::Init, "NCCL INFO x"));
    }

    #[test]
    fn an_agent_that_falls_silent_is_seen_from_outside() {
        let mut collector = collector();
        for line in 0..30 {
            collector.take_line(&format!("line {line}"));
        }
        let last_lines = collector.other_lines();
        assert_eq!((last_lines.len(), last_lines[0].as_str()), (20, "line 10"));
        let outside = Ending::ContainerEnded { exit_code: 137, out_of_memory: true, last_lines };
        assert_eq!(collector.finish(Some(outside.clone()), RunTime::default()).ending, outside);
    }
}
