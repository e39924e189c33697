//! The body of PAI-DLC's CreateJob. Pure.
//!
//! Sources: Alibaba Cloud help, PAI, "CreateJob" and "JobSpec" (names, types, 65,536 bytes), "PAI DLC job" (the `pai` program),
//! "Built-in environment variables" (MASTER_ADDR and others) and "Use eRDMA for distributed training" (the platform mounts the NICs and sets the variables of the target's presets).

use super::Job;
use super::document::{Node, map};
use super::spec::{JobError, JobSpec};
use crate::fabric::erdma::ERDMA;
use crate::shell::shell_quote;

/// Longest body, in bytes.
const MAX_BODY: usize = 65_536;

/// Longest display name.
const MAX_NAME: usize = 256;

/// The place in PAI where the job runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PaiPlace {
    /// `None`: the account's default.
    pub workspace_id: Option<String>,
    /// The id of a purchased quota.
    pub resource_id: Option<String>,
    /// `ecs.ebmgn8v.48xlarge`; `None`: the workers are shares of the quota.
    pub instance: Option<String>,
    /// Region, for the line that submits the job.
    pub region: Option<String>,
}

/// Writes the body, and how to submit it.
///
/// # Errors
/// The place does not define a worker, or the body is too long.
pub(super) fn body(spec: &JobSpec, place: &PaiPlace) -> Result<Job, JobError> {
    check_name(spec)?;
    let variables: Vec<(String, Node)> =
        spec.env.iter().map(|variable| (variable.name.clone(), variable.value.clone().into())).collect();
    // Without a master PAI uses the first worker as one.
    let workers =
        map([("Type", "Worker".into()), ("PodCount", spec.workers.into()), ("Image", spec.image.clone().into())]);
    let workers = match &place.instance {
        Some(instance) => workers.with("EcsSpec", Some(checked_instance(instance)?)),
        None => workers.with("ResourceConfig", Some(resources(spec, place)?)),
    };
    let root = map([("DisplayName", spec.name.clone().into()), ("JobType", "PyTorchJob".into())])
        .with("WorkspaceId", place.workspace_id.clone())
        .with("ResourceId", place.resource_id.clone())
        .with("UserCommand", Some(spec.command().shell_line()))
        .with("Envs", (!variables.is_empty()).then_some(Node::Map(variables)))
        .with("JobSpecs", Some(Node::List(vec![workers])));
    let text = root.to_json();
    if text.len() > MAX_BODY {
        return Err(JobError::Other {
            problem: format!("the job has {} bytes, and PAI-DLC accepts {MAX_BODY}", text.len()),
            remedy: "put the script into the image and start it from there".to_owned(),
        });
    }
    Ok(Job { text, notes: notes(spec, place) })
}

fn check_name(spec: &JobSpec) -> Result<(), JobError> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if (1..=MAX_NAME).contains(&spec.name.len()) && spec.name.chars().all(is_inner) {
        return Ok(());
    }
    Err(JobError::Value {
        option: "--name",
        value: spec.name.clone(),
        rule: format!("a job name has letters, digits, _, . and -, up to {MAX_NAME} characters"),
        remedy: "--name train".to_owned(),
    })
}

fn checked_instance(instance: &str) -> Result<String, JobError> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    if instance.starts_with("ecs.") && instance.len() > 4 && instance.chars().all(is_inner) {
        return Ok(instance.to_owned());
    }
    Err(JobError::Value {
        option: "--instance",
        value: instance.to_owned(),
        rule: "an ECS instance type is ecs.FAMILY.SIZE".to_owned(),
        remedy: "--instance ecs.ebmgn8v.48xlarge".to_owned(),
    })
}

/// A worker's share of a quota. The API takes strings here.
fn resources(spec: &JobSpec, place: &PaiPlace) -> Result<Node, JobError> {
    let missing = |what: &str| JobError::Other {
        problem: format!("{what} is missing: a worker of PAI-DLC is a share of a quota, or an instance type"),
        remedy: "--resource-id QUOTA --cpu 64 --memory 512Gi, or --instance ecs.ebmgn8v.48xlarge".to_owned(),
    };
    if place.resource_id.is_none() {
        return Err(missing("--resource-id"));
    }
    let cpu = spec.cpu.as_ref().ok_or_else(|| missing("--cpu"))?;
    let memory = spec.memory.as_ref().ok_or_else(|| missing("--memory"))?;
    Ok(map([
        ("CPU", cpu.to_string().into()),
        ("Memory", memory.to_string().into()),
        ("GPU", spec.gpus().to_string().into()),
    ])
    .with("SharedMemory", spec.shared_memory.as_ref().map(ToString::to_string)))
}

fn notes(spec: &JobSpec, place: &PaiPlace) -> Vec<String> {
    let mut notes = spec.notes_of_submission();
    let region = place.region.as_ref().map_or_else(String::new, |region| format!(" --region {}", shell_quote(region)));
    notes.push(format!(
        "save the text as job.json and submit it with one of these\n  aliyun pai-dlc CreateJob{region} --body \"$(cat job.json)\"\n  \
         pai dlc job submit --body-json \"$(cat job.json)\""
    ));
    let presets: Vec<String> = spec.target.nccl_presets.iter().map(|(name, value)| format!("{name}={value}")).collect();
    notes.push(format!(
        "PAI itself mounts the NICs and sets the variables, so the job names neither\n  {}",
        presets.join(" ")
    ));
    for variable in &spec.env {
        if let Some(preset) = spec.target.nccl_preset(&variable.name).filter(|preset| *preset != variable.value) {
            notes.push(format!("{} is {} here, where PAI sets {preset}", variable.name, variable.value));
        }
        if spec.target.nccl_without_effect.contains(&variable.name.as_str()) {
            notes.push(format!("{} has no effect on PAI", variable.name));
        }
    }
    if place.resource_id.is_none() {
        notes.push(
            "without --resource-id the job runs on public resources; PAI's page on eRDMA covers subscribed general computing \
             resources alone"
                .to_owned(),
        );
    }
    let known = |instance: &String| {
        let types = spec.target.instances;
        types.is_empty() || types.iter().any(|known| known.name == instance)
    };
    if let Some(instance) = place.instance.as_ref().filter(|instance| !known(instance)) {
        let types: Vec<&str> = spec.target.instances.iter().map(|known| known.name).collect();
        notes.push(format!("no source says that {instance} has {} NICs\n  known: {}", ERDMA.title, types.join(", ")));
    }
    notes.push(
        "PAI starts the command once on each host, with MASTER_ADDR, MASTER_PORT, WORLD_SIZE (hosts), RANK (of the host) and \
         NPROC_PER_NODE\n  --command 'torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK --nproc_per_node=$NPROC_PER_NODE \
         --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT train.py'"
            .to_owned(),
    );
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::spec::tests::{NASTY, command, spec, variable};
    use crate::job::spec::{UserCommand, Workload};
    use crate::targets::by_id;

    fn pai() -> JobSpec {
        let mut spec = spec();
        spec.target = by_id("pai-dlc").unwrap();
        spec
    }

    fn quota() -> PaiPlace {
        PaiPlace {
            workspace_id: Some("12345".into()),
            resource_id: Some("quota1".into()),
            instance: None,
            region: Some("cn-hangzhou".into()),
        }
    }

    #[test]
    fn on_a_quota() {
        let mut spec = pai();
        spec.cpu = Some("64".parse().unwrap());
        spec.memory = Some("512Gi".parse().unwrap());
        spec.shared_memory = Some("256Gi".parse().unwrap());
        spec.env = vec![variable("NCCL_DEBUG", "WARN"), variable("A", "b \"c\"")];
        spec.workload = Workload::Command(UserCommand::Shell("torchrun --nnodes=$WORLD_SIZE train.py".into()));
        let job = body(&spec, &quota()).unwrap();
        insta::assert_snapshot!("pai_dlc_quota", job.text);
        insta::assert_snapshot!("pai_dlc_quota_notes", job.notes.join("\n"));
    }

    #[test]
    fn on_an_instance_type() {
        let mut spec = pai();
        spec.workload = command(&NASTY);
        let place = PaiPlace { instance: Some("ecs.ebmgn8v.48xlarge".into()), ..PaiPlace::default() };
        let job = body(&spec, &place).unwrap();
        let json: serde_json::Value = serde_json::from_str(&job.text).unwrap();
        assert_eq!(json["JobSpecs"][0]["EcsSpec"], "ecs.ebmgn8v.48xlarge");
        assert_eq!(json["UserCommand"], spec.command().shell_line());
        // The platform provides presets and devices.
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["DisplayName", "JobSpecs", "JobType", "UserCommand"]);
        assert!(job.notes.iter().any(|note| note.contains("public resources")));
    }

    #[test]
    fn what_pai_does_not_take() {
        let says = |spec: &JobSpec, place: &PaiPlace, words: &str| {
            let text = body(spec, place).unwrap_err().to_string();
            assert!(text.contains(words), "{text:?} lacks {words:?}");
        };
        says(&pai(), &PaiPlace::default(), "--resource-id is missing");
        says(&pai(), &quota(), "--cpu is missing");
        let wrong = PaiPlace { instance: Some("p4d.24xlarge".into()), ..PaiPlace::default() };
        says(&pai(), &wrong, "ecs.FAMILY.SIZE");
        let place = PaiPlace { instance: Some("ecs.a.b".into()), ..PaiPlace::default() };
        let mut spec = pai();
        spec.workload = Workload::Command(UserCommand::Shell("x".repeat(70_000)));
        says(&spec, &place, "PAI-DLC accepts 65536");
        let mut spec = pai();
        spec.name = "a b".into();
        says(&spec, &place, "--name \"a b\"");
    }
}
