//! Recipes on the command line: what is listed, what a name means, what is judged with no image at hand, and what a daemon that
//! fails makes of several builds. Needs no engine.

use crate::support;
use crate::support::docker::mock_daemon;
use crate::support::schema;

use mock_daemon::MockDaemon;
use schema::{assert_valid, validator};
use serde_json::Value;
use support::*;
use tempfile::TempDir;

const NOWHERE: [&str; 2] = ["-H", "unix:///nonexistent/docker.sock"];

fn write(dir: &TempDir, name: &str, content: &str) -> String {
    let path = dir.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

fn recipe(image: &str, more: &str) -> String {
    format!("{more}\n[base]\nimage = '{image}'\n[fabric]\nname = 'erdma'\n")
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", ran.stdout, ran.stderr))
}

#[test]
fn the_shipped_recipes_are_listed() {
    let ran = run(rdmaprep().arg("images").current_dir("/"));
    insta::assert_snapshot!("images", ran.expect(0).stdout);
    for entry in std::fs::read_dir(root().join("images")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            ran.prints(&format!("\n{} ", entry.file_name().into_string().unwrap()));
        }
    }
    let listing = json(run(rdmaprep().args(["images", "--format", "json"])).expect(0));
    assert_valid(&validator("schemas/images.schema.json"), &listing, "images.schema.json");
    let recipes = listing["recipes"].as_array().unwrap();
    assert_eq!(recipes.len(), ran.stdout.lines().count() - 1);
    for recipe in recipes {
        for fact in recipe["facts"].as_array().unwrap() {
            assert!(!fact["source"].as_str().unwrap().is_empty(), "{recipe}");
        }
    }
}

#[test]
fn one_recipe_is_shown_with_its_sources() {
    let ran = run(rdmaprep().args(["images", "egs-erdma-cuda12.4"]));
    insta::assert_snapshot!("images_one", ran.expect(0).stdout);
    let ran = run(rdmaprep().args(["images", "recipe:pai-nccl-tests", "--region", "cn-wulanchabu"]));
    ran.expect(0).prints("dsw-registry-vpc.cn-wulanchabu.cr.aliyuncs.com/pai/nccl-tests:12.2.2");
    ran.prints("check it: rdmaprep check dsw-registry-vpc.cn-wulanchabu.cr.aliyuncs.com/pai/nccl-tests:12.2.2");
    let ran = run(rdmaprep().args(["images", "pai-nccl-tests"]));
    // The placeholder for the region is not a word of a command.
    ran.expect(0)
        .prints("image     dsw-registry-vpc.{region}.cr")
        .prints("check it: rdmaprep check dsw-registry-vpc.cn-");
    assert_eq!(ran.stdout.matches("{region}").count(), 1, "{}", ran.stdout);
    assert!(ran.stdout.ends_with(" --target pai-dlc\n"), "{}", ran.stdout);
    let one = json(run(rdmaprep().args(["images", "cuda-12.4-ubuntu22.04", "--format", "json"])).expect(0));
    assert_eq!(one["recipes"].as_array().unwrap().len(), 1);
    assert_eq!(one["recipes"][0]["tag"], "cuda-12.4-ubuntu22.04-erdma");
    // A recipe of the user's.
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir, "mine/recipe.toml", &recipe("a:1", "packages = ['perftest']"));
    let ran = run(rdmaprep().args(["images", &path]));
    ran.expect(0).prints("mine-erdma").prints("perftest").prints(&format!("build it: rdmaprep build {path}\n"));
    // The usual target has another fabric, and one that has this one takes its place.
    let path = write(&dir, "a roce/recipe.toml", "[base]\nimage = 'a:1'\n[fabric]\nname = 'roce'\n");
    run(rdmaprep().args(["images", &path])).expect(0).prints(&format!("rdmaprep build '{path}'\n"));
    run(rdmaprep().args(["check", &path, "--target", "pai-dlc"]).args(NOWHERE))
        .expect(2)
        .says("is for RoCE on mlx5")
        .says("--target");
    run(rdmaprep().args(["check", &path]).args(NOWHERE))
        .expect(3)
        .prints(&format!("show the rest: rdmaprep build '{path}' --target cce\n"));
}

#[test]
fn what_is_no_recipe() {
    for (args, said) in [
        (vec!["images", "cuda-12.4-ubuntu2204"], "did you mean cuda-12.4-ubuntu22.04"),
        (vec!["images", "zzz"], "rdmaprep images lists them"),
        (vec!["images", "--region", "cn-beijing"], "--region is for one recipe"),
        (vec!["images", "cuda-12.4-ubuntu22.04", "--region", "cn-beijing"], "leave --region out"),
        (vec!["images", "pai-nccl-tests", "--region", "CN.x"], "is not a region id"),
        (vec!["build", "cuda-12.4-ubuntu2204"], "is treated as an image: did you mean cuda-12.4-ubuntu22.04"),
        (vec!["build", "cuda-12.4-ubuntu2204", "a:1"], "is treated as an image: did you mean cuda-12.4-ubuntu22.04"),
        (vec!["build", "/proc/self/fdinfo"], "the directory /proc/self/fdinfo has no recipe.toml\n"),
        (vec!["build", "/proc/self/fdinfo", "-t", "a:1"], "--all /proc/self/fdinfo builds those below it"),
        (vec!["render", "/proc/self/fdinfo"], "--all /proc/self/fdinfo builds those below it"),
        (vec!["check", "/proc/self/fdinfo"], "--all /proc/self/fdinfo builds those below it"),
        (vec!["images", "/proc/self/fdinfo"], "--all /proc/self/fdinfo builds those below it"),
        (vec!["images", "/"], "the directory / has no recipe.toml\n"),
        (vec!["check", "cuda-12.4-ubuntu22.04", "--target", "cce"], "is for Alibaba eRDMA, but the target has RoCE"),
        (vec!["check", "recipe:zzz"], "there is no shipped recipe \"zzz\""),
        (vec!["build", "recipe:zzz"], "there is no shipped recipe \"zzz\""),
        (vec!["build", "egs-erdma-cuda12.4"], "there is nothing to swap\n  rdmaprep check egs-registry"),
        (vec!["build", "egs-erdma-cuda12.4"], ":cuda12.4.1-cudnn9-ubuntu22.04 --target ecs\n"),
        (vec!["build", "a:1", "-t", "b:1", "--region", "cn-beijing"], "a:1 is an image"),
        (vec!["build", "a:1"], "--tag"),
        (vec!["build", "a:1", "b:1"], "a:1 is an image"),
        (vec!["build", "recipe:cuda-12.4-ubuntu22.04", "recipe:cuda-12.4-ubuntu22.04"], "would both be"),
        (vec!["build", "--all", "-t", "x:1"], "several images cannot have one name"),
        (vec!["build", "--all", "/nonexistent"], "/nonexistent"),
        (vec!["build", "--all", "--region", "x", "/proc/self/fdinfo"], "has no recipes"),
        (vec!["build", "--all", "-j", "0"], "invalid value '0'"),
        (vec!["build", "recipe:cuda-12.4-ubuntu22.04", "--push"], "names no registry to push to"),
        (vec!["build", "recipe:cuda-12.4-ubuntu22.04", "--tag-prefix", "Reg/"], "do not form an image name"),
        (vec!["build"], "IMAGE|RECIPE"),
    ] {
        let ran = run(rdmaprep().args(&args).args(NOWHERE));
        assert_eq!(ran.code, Some(2), "{args:?}: {}{}", ran.stdout, ran.stderr);
        ran.says(said);
    }
}

#[test]
fn an_image_per_region_needs_the_region() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[base]\nimage = '127.0.0.1:1/{region}/a:1'\nregion_example = 'cn-hangzhou'\n[fabric]\nname = 'erdma'\n";
    let path = write(&dir, "r.toml", text);
    run(rdmaprep().args(["build", &path]).args(NOWHERE))
        .expect(2)
        .says("127.0.0.1:1/{region}/a:1")
        .says("--region cn-hangzhou");
    // With a region the daemon is asked.
    run(rdmaprep().args(["build", &path, "--region", "cn-beijing"]).args(NOWHERE)).expect(3).says("docker.sock");
    run(rdmaprep().args(["render", &path])).expect(2).says("--region cn-hangzhou");
}

/// Case B08, by what the vendor's own table says of its image.
#[test]
fn a_recipe_below_the_gate_of_a_target() {
    let ran = run(rdmaprep().args(["check", "egs-erdma-cuda12.1"]).args(NOWHERE));
    insta::assert_snapshot!("check_recipe", ran.expect(1).stdout);
    ran.prints("FAIL     nccl-version").prints("NCCL 2.17.1 is stated by the recipe: Alibaba Cloud help");
    let report =
        json(run(rdmaprep().args(["check", "egs-erdma-cuda12.1", "--format", "json"]).args(NOWHERE)).expect(1));
    assert_valid(&validator("schemas/recipe-report.schema.json"), &report, "recipe-report.schema.json");
    assert_eq!(
        (report["recipe"]["name"].as_str(), report["verdict"].as_str()),
        (Some("egs-erdma-cuda12.1"), Some("fail"))
    );
    assert!(report.get("image").is_none());
    let status = |check: &str| {
        let findings = report["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["check"] == check).unwrap()["status"].as_str().unwrap().to_owned()
    };
    assert_eq!((status("cuda-version").as_str(), status("nccl-version").as_str()), ("pass", "fail"));
    assert_eq!(status("rdma-provider"), "unknown", "nobody states it");
    // ECS states no minimum: nothing is wrong, and nothing is proved.
    let ran = run(rdmaprep().args(["check", "egs-erdma-cuda12.1", "--target", "ecs"]).args(NOWHERE));
    ran.expect(3)
        .prints("UNKNOWN for ecs")
        .prints("only the image itself can show the rest: rdmaprep check egs-registry")
        .prints(":cuda12.1.1-cudnn8-ubuntu22.04 --target ecs\n");
    assert!(!ran.stdout.contains("FAIL"), "{}", ran.stdout);
    run(rdmaprep().args(["check", "egs-erdma-cuda12.4"]).args(NOWHERE)).expect(3).prints("UNKNOWN for pai-dlc");
    // What is to be built says so.
    let ran = run(rdmaprep().args(["check", "cuda-12.4-ubuntu22.04"]).args(NOWHERE));
    ran.expect(3).prints("show the rest: rdmaprep build cuda-12.4-ubuntu22.04 --target pai-dlc\n");
}

#[test]
fn a_recipe_is_judged_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let text = recipe("a:1", "") + "[[expect]]\nsource = 'a page'\nnccl = '2.18.3'\ncuda = '12.4'\npython = '3.10'\n";
    let path = write(&dir, "r.toml", &text);
    let out = |name: &str| dir.path().join(name).display().to_string();
    let ran = run(rdmaprep()
        .args(["check", &path, "-o", &format!("sarif={}", out("s")), "-o", &format!("junit={}", out("j"))])
        .args(["--format", "github"]));
    ran.expect(1).prints("nccl-version").prints("NCCL 2.18.3");
    let sarif: Value = serde_json::from_str(&std::fs::read_to_string(out("s")).unwrap()).unwrap();
    assert_eq!(sarif["runs"][0]["properties"]["image"], "recipe:r");
    let rules = sarif["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(rules.iter().all(|rule| rule["id"] != "recipe-facts"), "no image was compared with the recipe");
    assert!(std::fs::read_to_string(out("j")).unwrap().contains("recipe:r for pai-dlc"));
    // A policy moves the minimum, as for an image.
    let policy = write(&dir, "p.toml", "minimum_nccl = '2.18.0'\n");
    run(rdmaprep().args(["check", &path, "--policy", &policy])).expect(3).prints("minimum");
}

#[test]
fn a_name_may_be_an_images_and_a_recipes() {
    let name = "cuda-12.4-ubuntu22.04";
    // A daemon with such an image; what it cannot do is give it out.
    let daemon = MockDaemon::with_api("1.41", move |request, reply| match request.endpoint() {
        path if path == format!("/images/{name}/json") => {
            reply.json(200, r#"{"Id":"sha256:00","RepoTags":["cuda-12.4-ubuntu22.04:latest"],"Config":null}"#);
        }
        _ => reply.json(404, r#"{"message":"no such thing"}"#),
    });
    let host = daemon.host();
    let ran = run(rdmaprep().args(["check", name, "-H", &host]));
    ran.expect(3).says("taking the image").says("recipe:cuda-12.4-ubuntu22.04");
    assert_eq!(ran.stdout, "", "the recipe was not judged");
    let ran = run(rdmaprep().args(["check", &format!("recipe:{name}"), "-H", &host]));
    ran.expect(3).prints("recipe:cuda-12.4-ubuntu22.04");
    assert_eq!(ran.stderr, "");
    // A directory with that name is not a recipe.
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(name)).unwrap();
    for args in [vec!["images", name], vec!["check", name, "-H", NOWHERE[1]]] {
        let ran = run(rdmaprep().args(&args).current_dir(&dir));
        assert!(ran.stdout.contains(name) && !ran.stderr.contains("has no recipe.toml"), "{args:?}: {}", ran.stderr);
    }
    // Without such an image it is the recipe, and without a daemon, too.
    let empty = MockDaemon::with_api("1.41", |_, reply| reply.json(404, r#"{"message":"no such image"}"#));
    for host in [empty.host().as_str(), NOWHERE[1]] {
        let ran = run(rdmaprep().args(["check", name, "-H", host]));
        ran.expect(3).prints("recipe:cuda-12.4-ubuntu22.04").prints("UNKNOWN for pai-dlc");
        assert_eq!(ran.stderr, "");
    }
}

/// Whoever has an image of a name did not mistype it.
#[test]
fn an_image_whose_name_is_like_a_recipes() {
    let name = "cuda-12.4-ubuntu2204";
    let daemon = MockDaemon::with_api("1.41", move |request, reply| match request.endpoint() {
        path if path == format!("/images/{name}/json") => reply.json(200, r#"{"Id":"sha256:00","Config":null}"#),
        _ => reply.json(404, r#"{"message":"no such thing"}"#),
    });
    let ran = run(rdmaprep().args(["build", name, "-H", &daemon.host()]));
    ran.expect(2).says("the new image needs a name");
    assert!(!ran.stderr.contains("did you mean"), "{}", ran.stderr);
}

/// Answers of an engine whose pull fails in a way of its own for each image.
fn failing_daemon() -> MockDaemon {
    MockDaemon::with_api("1.41", |request, reply| match request.endpoint() {
        "/images/create" if request.path.contains("private") => {
            reply.json(404, r#"{"message":"pull access denied for private/a, repository does not exist or may require 'docker login'"}"#);
        }
        "/images/create" if request.path.contains("broken") => {
            reply.stream(&[
                b"{\"status\":\"Pulling from broken/a\",\"id\":\"1\"}\r\n",
                b"{\"errorDetail\":{\"message\":\"unexpected EOF\"},\"error\":\"unexpected EOF\"}\r\n",
            ]);
        }
        "/images/create" => reply.stream(&[b"{\"status\":\"Digest: sha256:00\"}\r\n"]),
        _ => reply.json(404, r#"{"message":"no such image"}"#),
    })
}

#[test]
fn one_failure_does_not_keep_the_others() {
    let daemon = failing_daemon();
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "private.toml", &recipe("private/a:1", ""));
    write(&dir, "broken/recipe.toml", &recipe("broken/a:1", ""));
    write(&dir, "vanishing.toml", &recipe("vanishing/a:1", ""));
    write(&dir, "ready.toml", &recipe("ready/a:1", "kind = 'ready'"));
    let all = dir.path().display().to_string();
    let ran = run(rdmaprep().args(["build", "--all", &all, "-H", &daemon.host(), "-j", "4"]));
    ran.expect(3)
        .prints("RECIPE     RESULT   VERDICT  TIME")
        .prints("the registry docker.io has no such image, or hides it from this user")
        .prints("unexpected EOF")
        .prints("the engine finished, but has no such image")
        .prints("ready for Alibaba eRDMA: there is nothing to swap")
        .prints("3 failed, 1 skipped")
        .says("broken: pulling broken/a:1")
        .says("private: pulling private/a:1");
    let names: Vec<&str> = ran.stdout.lines().skip(1).map(|line| line.split(' ').next().unwrap()).take(4).collect();
    assert_eq!(names, ["broken", "private", "ready", "vanishing"]);

    let ran =
        run(rdmaprep().args(["build", "--all", &all, "-H", &daemon.host(), "--format", "json", "--progress", "json"]));
    let result = json(ran.expect(3));
    assert_eq!((result["schema_version"].as_u64(), result["exit_code"].as_u64()), (Some(1), Some(3)));
    let rows = result["recipes"].as_array().unwrap();
    let results: Vec<(&str, &str, u64)> = rows
        .iter()
        .map(|row| {
            (row["recipe"].as_str().unwrap(), row["result"].as_str().unwrap(), row["exit_code"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(
        results,
        [("broken", "failed", 3), ("private", "failed", 3), ("ready", "skipped", 0), ("vanishing", "failed", 3)]
    );
    assert!(rows[1]["remedy"][0].as_str().unwrap().contains("docker login docker.io"), "{}", rows[1]);
    // Every line of the progress says of which recipe it is.
    let lines: Vec<Value> = ran.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(lines.len() >= 3 && lines.iter().all(|line| line["recipe"].is_string()), "{}", ran.stderr);

    // One alone says the same and ends alike.
    let path = dir.path().join("private.toml").display().to_string();
    run(rdmaprep().args(["build", &path, "-H", &daemon.host()])).expect(3).says("docker login docker.io");
    run(rdmaprep().args(["build", &path, "--pull", "never", "-H", &daemon.host()]))
        .expect(3)
        .says("docker pull private/a:1");
}

/// A recipe that cannot be read ends everything before anything is built.
#[test]
fn a_broken_recipe_among_several() {
    let daemon = failing_daemon();
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "good.toml", &recipe("a:1", ""));
    let bad = write(&dir, "bad.toml", &recipe("a:1", "colour = 'red'"));
    let ran = run(rdmaprep().args(["build", "--all", &dir.path().display().to_string(), "-H", &daemon.host()]));
    ran.expect(2).says(&bad).says("unknown field `colour`");
    assert!(daemon.requests().is_empty(), "{:?}", daemon.requests());
    // Each is for a target of its own fabric; where one is named a recipe for another fabric is its own failure.
    write(&dir, "bad.toml", "[base]\nimage = 'b:1'\n[fabric]\nname = 'roce'\n");
    let all = || {
        let mut command = rdmaprep();
        command.args(["build", "--all", &dir.path().display().to_string(), "-H", &daemon.host()]);
        command
    };
    let ran = run(&mut all());
    assert_eq!(ran.stdout.matches("the engine finished, but has no such image").count(), 2, "{}", ran.stdout);
    // What only some can be built with is theirs alone; what none can, is said at once.
    run(all().args(["--userspace", "inbox"]))
        .expect(2)
        .prints("has no userspace \"inbox\"")
        .prints("the engine finished");
    run(all().args(["--target", "ecs", "--userspace", "inbox"])).expect(2).says("has no userspace \"inbox\"");
    let ran = run(all().args(["--target", "ecs"]));
    ran.expect(2)
        .prints("is for RoCE on mlx5")
        .says("bad:   choose another --target")
        .prints("the engine finished, but has no such image");
}

/// What documents say of a type is said of the image that a recipe names, too.
#[test]
fn a_recipe_for_an_instance_type() {
    let check = |args: &[&str]| run(rdmaprep().args(["check", "egs-erdma-cuda12.4"]).args(args));
    check(&["--instance", "ebmgn7v.32xlarge"]).expect(3).prints("warn     instance-image").prints("is of generation 7");
    let ran = check(&["--instance", "gn8is.2xlarge", "--format", "json"]);
    assert_eq!(json(ran.expect(3))["instance"]["name"], "ecs.gn8is.2xlarge");
}
