//! Compares what a recipe states with an image built from it, or with a target if there is no image.

use super::image::consumers::{CRASHES_ON_ERDMA, deciding};
use super::{Check, Finding, Outcome, Severity, image};
use crate::distro::Distro;
use crate::facts::{CudaSource, ImageFacts};
use crate::recipe::{Fact, Kind, REGION, Recipe, StatedFact};
use crate::shell::shell_join;
use crate::targets::Target;
use crate::versions::{NcclVersion, parse_cuda_version, parse_nccl_version};

/// A recipe and the image built from it.
pub struct RecipeSubject<'a> {
    pub recipe: &'a Recipe,
    pub facts: &'a ImageFacts,
}

/// How a check judges.
pub type Judge = fn(&RecipeSubject<'_>) -> Outcome;

/// The checks of an image that was built from a recipe.
pub static REGISTRY: &[Check<Judge>] = &[Check {
    id: "recipe-facts",
    // The image's own checks decide whether it is right; an outdated recipe does not make it wrong.
    severity: Severity::Advice,
    exceptions: &[],
    about: "The image matches its recipe's statements.",
    needs: &["cuda", "nccl", "nccl_consumers", "packages", "python3", "torch", "distro"],
    why: "The recipe states versions with their sources. If the image has others, its base's tag moved, or the recipe \
          is wrong: users of the recipe get something else.",
    remedy: "Correct the recipe's [[expect]], or pin the intended base with base.digest.",
    source: "the recipe; images/README.md describes its format",
    judge: recipe_facts,
}];

/// Runs the checks of an image that was built from a recipe.
pub fn check_built(subject: &RecipeSubject<'_>, target: &Target) -> Vec<Finding> {
    REGISTRY.iter().map(|check| (check.judge)(subject).into_finding(check, target)).collect()
}

/// The image's value of something that a recipe can state.
enum Found {
    Values(Vec<String>),
    /// The image has none.
    Nothing,
    /// The facts do not say.
    Untold,
}

fn found(facts: &ImageFacts, fact: Fact) -> Found {
    let one = |value: Option<String>| value.map_or(Found::Untold, |value| Found::Values(vec![value]));
    let some = |mut values: Vec<String>| {
        values.sort();
        values.dedup();
        if values.is_empty() { Found::Untold } else { Found::Values(values) }
    };
    match fact {
        Fact::Cuda => match facts.cuda.evidence.first() {
            None => Found::Nothing,
            // A variable shows what somebody meant to install.
            Some(first) if first.source == CudaSource::Env => Found::Untold,
            Some(first) => one(Some(first.version.clone())),
        },
        Fact::Nccl if facts.nccl.is_empty() && !facts.nccl_consumers.is_empty() => Found::Nothing,
        Fact::Nccl => some(deciding(facts).iter().filter_map(|used| used.version).map(|v| v.to_string()).collect()),
        Fact::Cudnn => {
            let is_runtime =
                |name: &str| name.starts_with("libcudnn") && !name.contains("-dev") && !name.contains("-headers");
            let packages = facts.packages.all_installed().filter(|package| is_runtime(&package.name));
            some(packages.map(|package| upstream(&package.version)).collect())
        }
        Fact::Python => match &facts.python3 {
            None => Found::Nothing,
            Some(python) => one(python.version.clone()),
        },
        Fact::Torch if facts.torch.is_empty() => Found::Nothing,
        Fact::Torch => some(facts.torch.iter().filter_map(|torch| torch.version.as_deref()).map(upstream).collect()),
        Fact::Distro => one(facts.distro.as_ref().and_then(|d| Some(format!("{}-{}", d.id, d.version.as_ref()?)))),
    }
}

/// `9.1.0.70-1` → `9.1.0.70`, `2.6.0+cu124` → `2.6.0`.
fn upstream(version: &str) -> String {
    version.split(['-', '+']).next().unwrap_or(version).to_owned()
}

fn recipe_facts(subject: &RecipeSubject<'_>) -> Outcome {
    let (mut right, mut wrong, mut untold, mut evidence) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for StatedFact { fact, value, source } in &subject.recipe.facts {
        match found(subject.facts, *fact) {
            Found::Untold => untold.push(fact.to_string()),
            Found::Values(values) if values.iter().all(|found| fact.agrees(value, found)) => {
                right.push(format!("{fact} {}", values.join(", ")));
            }
            other => {
                let found = match other {
                    Found::Values(values) => values.join(", "),
                    Found::Nothing | Found::Untold => "not in the image".to_owned(),
                };
                wrong.push(format!("{fact} is {found}, but the recipe states {value}"));
                evidence.push(format!("{fact} {value} is stated by {source}"));
            }
        }
    }
    if !wrong.is_empty() {
        return Outcome::warn(wrong.join("; "))
            .evidence(evidence)
            .remedy("correct the recipe's [[expect]], or pin the intended base with base.digest");
    }
    match (right.is_empty(), untold.is_empty()) {
        (true, true) => Outcome::skip("the recipe states nothing"),
        (_, false) => Outcome::unknown(format!("the image does not show its {}", untold.join(", "))),
        (false, true) => Outcome::pass(format!("as stated: {}", right.join(", "))),
    }
}

/// The summary for everything that only an image can show.
pub const NOT_STATED: &str = "the recipe does not say";

/// Judges what a recipe states, without an image: a finding for every check of an image. What is not stated is unknown.
///
/// `call` is the recipe's name on a command line.
pub fn check_stated(recipe: &Recipe, call: &str, target: &Target) -> Vec<Finding> {
    let unknown = || Outcome::unknown(NOT_STATED).remedy(how_to_know(recipe, call, None, Some(target)));
    let outcome = |check: &Check<image::Judge>| match check.id {
        "nccl-version" => nccl_version(recipe, target),
        "nccl-release" => nccl_release(recipe, target),
        "cuda-version" => cuda_version(recipe, target),
        "python3" => python3(recipe, target),
        "distro-listed" => distro_listed(recipe, target),
        _ => None,
    };
    image::REGISTRY.iter().map(|check| outcome(check).unwrap_or_else(unknown).into_finding(check, target)).collect()
}

/// The command that shows what a recipe cannot, for a target: it checks a ready image, and builds any other. The default
/// region is the recipe's example, the default target the program's own.
pub fn how_to_know(recipe: &Recipe, call: &str, region: Option<&str>, target: Option<&Target>) -> String {
    let mut words = match recipe.kind {
        Kind::Ready => {
            let image = region.map_or_else(|| recipe.example_image(), |id| recipe.base().replace(REGION, id));
            vec!["rdmaprep".to_owned(), "check".to_owned(), image]
        }
        Kind::Base => {
            let region = region.or(recipe.region_example()).filter(|_| recipe.base().contains(REGION));
            let region = region.into_iter().flat_map(|id| ["--region".to_owned(), id.to_owned()]);
            ["rdmaprep", "build", call].map(str::to_owned).into_iter().chain(region).collect()
        }
    };
    words.extend(target.into_iter().flat_map(|target| ["--target".to_owned(), target.id.to_owned()]));
    shell_join(&words)
}

fn stated_by(stated: &StatedFact) -> [String; 1] {
    [format!("{} {} is stated by the recipe: {}", stated.fact, stated.value, stated.source)]
}

// `None`: the recipe does not say.

fn nccl_version(recipe: &Recipe, target: &Target) -> Option<Outcome> {
    let Some(minimum) = &target.minimum_nccl else {
        return Some(Outcome::skip(format!("{} states no minimum", target.title)));
    };
    let (stated, version) = stated_nccl(recipe)?;
    let outcome = if !minimum.allows(version) {
        Outcome::fail(format!("NCCL {version}; {} needs {minimum}", target.title))
            .remedy(format!("choose an image with NCCL {minimum}: rdmaprep images"))
    } else {
        Outcome::pass(format!("NCCL {version}"))
    };
    Some(outcome.evidence(stated_by(stated)))
}

fn nccl_release(recipe: &Recipe, target: &Target) -> Option<Outcome> {
    if target.fabric.id != "erdma" {
        return Some(Outcome::skip("no release is known to fail on this fabric"));
    }
    let (stated, version) = stated_nccl(recipe)?;
    let outcome = if CRASHES_ON_ERDMA.contains(&version) {
        Outcome::fail(format!("NCCL {version} crashes at start on eRDMA"))
            .remedy("choose an image with another release: rdmaprep images")
    } else {
        Outcome::pass(format!("NCCL {version} is not known to fail"))
    };
    Some(outcome.evidence(stated_by(stated)))
}

fn stated_nccl(recipe: &Recipe) -> Option<(&StatedFact, NcclVersion)> {
    let stated = recipe.fact(Fact::Nccl)?;
    Some((stated, parse_nccl_version(&stated.value)?))
}

fn cuda_version(recipe: &Recipe, target: &Target) -> Option<Outcome> {
    let Some(minimum) = target.minimum_cuda else {
        return Some(Outcome::skip(format!("{} states no minimum", target.title)));
    };
    let stated = recipe.fact(Fact::Cuda)?;
    let version = parse_cuda_version(&stated.value)?;
    let outcome = if version < minimum {
        Outcome::fail(format!("CUDA {version}; {} needs {minimum} or newer", target.title))
            .remedy(format!("choose an image with CUDA {minimum} or newer: rdmaprep images"))
    } else {
        Outcome::pass(format!("CUDA {version}"))
    };
    Some(outcome.evidence(stated_by(stated)))
}

fn distro_listed(recipe: &Recipe, target: &Target) -> Option<Outcome> {
    const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
    let fabric = target.fabric;
    if fabric.public_mirror.is_none() {
        return Some(Outcome::skip(format!("{} has no packages besides the distribution's", fabric.title)));
    }
    let stated = recipe.fact(Fact::Distro);
    let (id, version) = stated.map(|stated| &stated.value).or(recipe.distro.as_ref())?.rsplit_once('-')?;
    let distro = Distro {
        id: id.to_owned(),
        version: Some(version.to_owned()),
        codename: None,
        like: Vec::new(),
        pretty_name: None,
    };
    let (listed, others): (Vec<&str>, Vec<&str>) =
        ARCHITECTURES.into_iter().partition(|architecture| fabric.lists(&distro, architecture));
    let outcome = match (listed.is_empty(), others.is_empty()) {
        (true, _) => Outcome::warn(format!("{distro} is not on the vendor's list"))
            .evidence([format!("listed: {}", fabric.all_known())]),
        (false, true) => Outcome::pass(distro.to_string()),
        (false, false) => Outcome::unknown(format!(
            "{distro} is listed for {} but not for {}: the recipe does not say which one the image is for",
            listed.join(", "),
            others.join(", ")
        )),
    };
    Some(outcome.evidence(stated.iter().flat_map(|stated| stated_by(stated))))
}

fn python3(recipe: &Recipe, target: &Target) -> Option<Outcome> {
    match recipe.fact(Fact::Python) {
        Some(stated) => Some(Outcome::pass(format!("python {}", stated.value)).evidence(stated_by(stated))),
        None if !target.needs_python3 => Some(Outcome::skip(format!("{} does not need it", target.title))),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::image::testing::good;
    use crate::checks::{Bar, Status, Verdict, verdict};
    use crate::recipe::{parse_recipe, shipped};
    use crate::targets;

    fn stating(expect: &str) -> Recipe {
        let text = format!("[base]\nimage = 'a'\n[fabric]\nname = 'erdma'\n[[expect]]\nsource = 'a page'\n{expect}\n");
        parse_recipe("x", &text).unwrap()
    }

    fn built(recipe: &Recipe, facts: &ImageFacts) -> Finding {
        check_built(&RecipeSubject { recipe, facts }, targets::by_id("ecs").unwrap()).remove(0)
    }

    #[test]
    fn an_image_that_is_what_its_recipe_states() {
        let facts = good();
        let nccl = deciding(&facts)[0].version.unwrap();
        let distro = facts.distro.as_ref().unwrap();
        let distro = format!("{}-{}", distro.id, distro.version.as_ref().unwrap());
        let cuda = facts.cuda.version.clone().unwrap();
        let recipe = stating(&format!("nccl = '{nccl}'\ndistro = '{distro}'\ncuda = '{cuda}.1'"));
        let finding = built(&recipe, &facts);
        assert_eq!(finding.status, Status::Pass, "{finding:?}");
        assert!(finding.summary.contains(&format!("NCCL {nccl}")), "{}", finding.summary);
    }

    #[test]
    fn every_deviation_is_named_with_its_source() {
        let mut facts = good();
        facts.python3 = None;
        facts.torch = Vec::new();
        let expect = "cuda = '11.8'\nnccl = '2.1.2'\npython = '3.8'\ntorch = '1.0.0'\ndistro = 'debian-7'";
        let finding = built(&stating(expect), &facts);
        assert_eq!((finding.check.as_str(), finding.status), ("recipe-facts", Status::Warn));
        for part in
            ["CUDA is ", "NCCL is ", "python is not in the image", "torch is not in the image", "distribution is "]
        {
            assert!(finding.summary.contains(part), "{part}: {}", finding.summary);
        }
        assert_eq!(finding.evidence.len(), 5);
        assert!(finding.evidence.iter().all(|line| line.ends_with("is stated by a page")), "{:?}", finding.evidence);
    }

    #[test]
    fn what_the_image_does_not_show_is_unknown() {
        let mut facts = good();
        facts.cuda.evidence.truncate(1);
        facts.cuda.evidence[0].source = CudaSource::Env;
        assert_eq!(built(&stating("cuda = '12.4'"), &facts).status, Status::Unknown);
        assert_eq!(built(&stating("cudnn = '9'"), &good()).status, Status::Unknown);
        assert_eq!(built(&stating(""), &good()).status, Status::Skip);
        // A deviation is reported although something else is unknown.
        assert_eq!(built(&stating("cudnn = '9'\ncuda = '11.8'"), &good()).status, Status::Warn);
    }

    #[test]
    fn cudnn_by_its_package() {
        let mut facts = good();
        let mut package = facts.packages.list[0].clone();
        (package.name, package.version) = ("libcudnn9-cuda-12".into(), "9.1.0.70-1".into());
        facts.packages.list.push(package.clone());
        (package.name, package.version) = ("libcudnn9-dev-cuda-12".into(), "8.0.0-1".into());
        facts.packages.list.push(package);
        assert_eq!(built(&stating("cudnn = '9.1.0.70'"), &facts).status, Status::Pass);
        assert_eq!(built(&stating("cudnn = '8'"), &facts).status, Status::Warn);
    }

    fn stated(name: &str, target: &str) -> Vec<Finding> {
        let recipe = shipped::by_name(name).unwrap().unwrap();
        check_stated(&recipe, name, targets::by_id(target).unwrap())
    }

    fn status_of(findings: &[Finding], check: &str) -> Status {
        findings.iter().find(|finding| finding.check == check).unwrap().status
    }

    /// Case B08: CUDA is new enough, and NCCL is not.
    #[test]
    fn an_image_whose_nccl_is_below_the_gate() {
        for name in ["egs-erdma-cuda12.1", "cuda-12.1-ubuntu22.04"] {
            let findings = stated(name, "pai-dlc");
            assert_eq!(status_of(&findings, "cuda-version"), Status::Pass, "{name}");
            let nccl = findings.iter().find(|finding| finding.check == "nccl-version").unwrap();
            assert_eq!(nccl.status, Status::Fail, "{name}");
            assert!(nccl.summary.contains("2.17.1") && nccl.summary.contains("2.19.0"), "{}", nccl.summary);
            assert!(nccl.evidence[0].contains("is stated by the recipe: "), "{:?}", nccl.evidence);
            assert_eq!(verdict(&findings, Bar::Fail), Verdict::Fail);
            // ECS states no minimum: nothing counts against it, and nothing is proved.
            let findings = stated(name, "ecs");
            assert_eq!(status_of(&findings, "nccl-version"), Status::Skip);
            assert_eq!(verdict(&findings, Bar::Fail), Verdict::Unknown);
        }
    }

    #[test]
    fn what_is_right_is_no_pass_of_the_image() {
        for target in targets::TARGETS {
            for (name, _) in shipped::SHIPPED {
                let findings = stated(name, target.id);
                assert_eq!(findings.len(), image::REGISTRY.len());
                assert_ne!(verdict(&findings, Bar::Fail), Verdict::Pass, "{name} for {}", target.id);
                // A pass rests on something that somebody states.
                for finding in findings.iter().filter(|finding| finding.status == Status::Pass) {
                    assert_eq!(finding.evidence.len(), 1, "{name}: {finding:?}");
                }
            }
        }
        let findings = stated("acs-horovod-0.28", "pai-dlc");
        assert_eq!(status_of(&findings, "nccl-version"), Status::Unknown);
        assert_eq!(status_of(&findings, "cuda-version"), Status::Unknown);
        assert_eq!(status_of(&findings, "python3"), Status::Pass);
    }

    #[test]
    fn the_command_that_shows_the_rest() {
        let of = |text: &str, region, target: Option<&str>| {
            let recipe = parse_recipe("x", text).unwrap();
            how_to_know(&recipe, "my recipes/x", region, target.map(|id| targets::by_id(id).unwrap()))
        };
        let base = "[base]\nimage = 'a:1'\n[fabric]\nname = 'erdma'\n";
        assert_eq!(of(base, None, Some("ack")), "rdmaprep build 'my recipes/x' --target ack");
        assert_eq!(of(base, None, None), "rdmaprep build 'my recipes/x'");
        let ready = format!("kind = 'ready'\n{base}");
        assert_eq!(of(&ready, None, Some("ecs")), "rdmaprep check a:1 --target ecs");
        // An image per region has no other name in a shell, either.
        let regional = base.replace("a:1'", "r.{region}.x/a:1'\nregion_example = 'cn-hangzhou'");
        assert_eq!(of(&regional, None, None), "rdmaprep build 'my recipes/x' --region cn-hangzhou");
        assert_eq!(of(&regional, Some("cn-beijing"), None), "rdmaprep build 'my recipes/x' --region cn-beijing");
        let ready = format!("kind = 'ready'\n{regional}");
        assert_eq!(of(&ready, None, None), "rdmaprep check r.cn-hangzhou.x/a:1");
        assert_eq!(of(&ready, Some("cn-beijing"), Some("ecs")), "rdmaprep check r.cn-beijing.x/a:1 --target ecs");
        let without = ready.replace("region_example = 'cn-hangzhou'", "");
        assert_eq!(of(&without, None, None), "rdmaprep check 'r.{region}.x/a:1'");
        // What is judged for a target is built for it.
        let recipe = parse_recipe("x", base).unwrap();
        let findings = check_stated(&recipe, "x", targets::by_id("ecs").unwrap());
        let remedy = findings.iter().find(|finding| finding.summary == NOT_STATED).unwrap().remedy.clone();
        assert_eq!(remedy.as_deref(), Some("rdmaprep build x --target ecs"));
    }

    /// For an image that is not at hand the list is asked for every architecture.
    #[test]
    fn a_stated_distribution() {
        for (distro, status) in [
            ("ubuntu-22.04", Status::Pass),
            ("ubuntu-20.04", Status::Unknown),
            ("centos-7", Status::Unknown),
            ("alinux-3", Status::Pass),
            ("anolis-8.6", Status::Warn),
            ("debian-12", Status::Warn),
        ] {
            let findings = check_stated(&stating(&format!("distro = '{distro}'")), "x", targets::by_id("ecs").unwrap());
            assert_eq!(status_of(&findings, "distro-listed"), status, "{distro}");
        }
        // RoCE's fabric has no list.
        let findings = check_stated(&stating("distro = 'debian-12'"), "x", targets::by_id("cce").unwrap());
        assert_eq!(status_of(&findings, "distro-listed"), Status::Skip);
        let findings = check_stated(&stating("cuda = '12.4'"), "x", targets::by_id("ecs").unwrap());
        assert_eq!(status_of(&findings, "distro-listed"), Status::Unknown);
    }

    #[test]
    fn a_release_that_crashes() {
        let target = targets::by_id("pai-dlc").unwrap();
        let findings = check_stated(&stating("nccl = '2.28.9'"), "x", target);
        assert_ne!(status_of(&findings, "nccl-release"), Status::Pass);
        assert_eq!(status_of(&findings, "nccl-version"), Status::Pass);
        let findings = check_stated(&stating("nccl = '2.28.3'\ncuda = '11.8'"), "x", target);
        assert_eq!(status_of(&findings, "nccl-release"), Status::Pass);
        assert_eq!(status_of(&findings, "cuda-version"), Status::Fail);
    }
}
