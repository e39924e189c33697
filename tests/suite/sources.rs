//! Every layout of an image that exists, whole and broken: the same facts, or an error that says what is wrong.

use crate::support;
use crate::support::image_fixture;
use crate::support::oci_fixture;

use image_fixture::{Fixture, tar_of};
use oci_fixture::*;
use rdmaprep::image::archive::read_stream;
use rdmaprep::image::platform::Platform;
use rdmaprep::image::{Image, ImageError, ReadOptions};
use rdmaprep::inspect::{harvest, inspect};
use serde_json::{Value, json};
use std::path::Path;
use support::*;
use tempfile::TempDir;

const NAME: &str = "example/train:1";

/// The good image in three layers, the last of them twice.
fn layers() -> Vec<Vec<u8>> {
    let top = tar_of(&[("opt/note", b"n".as_slice())]);
    vec![Fixture::good().layer(), top.clone(), top]
}

fn write(dir: &TempDir, name: &str, content: &[u8]) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// The facts without what names the source.
fn facts(args: &[&str]) -> Value {
    let ran = run(rdmaprep().args(["inspect", "--format", "json"]).args(args));
    let mut facts: Value = serde_json::from_str(&ran.expect(0).stdout).unwrap();
    for key in ["reference", "manifest_digest", "repo_tags"] {
        facts["image"][key] = Value::Null;
    }
    facts
}

/// Case F06: the layouts of three engines; and every other way to store the same image.
#[test]
fn every_layout_gives_the_same_facts() {
    let dir = tempfile::tempdir().unwrap();
    let layers = layers();
    let classic = classic_save(&layers, NAME);
    let containerd = containerd_save(&layers, NAME);
    let old = old_save(&layers, NAME);
    let expected = facts(&[&write(&dir, "classic.tar", &classic.archive())]);
    assert_eq!(expected["image"]["layers"].as_array().unwrap().len(), 3);
    assert!(!expected["nccl"].as_array().unwrap().is_empty());
    let mut paths = vec![
        write(&dir, "containerd.tar", &containerd.archive()),
        write(&dir, "old.tar", &old),
        write(&dir, "old.tar.gz", &pack(&old, Packing::Gzip)),
        write(&dir, "classic.tar.zst", &pack(&classic.archive(), Packing::Zstd)),
        write(&dir, "containerd.tar.gz", &pack(&containerd.archive(), Packing::Gzip)),
    ];
    for (name, packing) in [("plain", Packing::Plain), ("gzip", Packing::Gzip), ("zstd", Packing::ZstdSkippable)] {
        let mut parts = Parts::default();
        let image = parts.image(&layers, "amd64", packing);
        parts.top(&[image]);
        let path = dir.path().join(name);
        parts.directory(&path);
        paths.push(path.display().to_string());
        paths.push(format!("oci:{}", path.display()));
        paths.push(write(&dir, &format!("{name}.tar"), &parts.archive()));
        paths.push(format!("oci-archive:{}.tar", path.display()));
        paths.push(write(&dir, &format!("{name}.tar.gz"), &pack(&parts.archive(), Packing::Gzip)));
    }
    // An archive that was unpacked.
    containerd.directory(&dir.path().join("unpacked"));
    paths.push(dir.path().join("unpacked").display().to_string());
    for path in &paths {
        assert_eq!(facts(&[path]), expected, "{path}");
        let mut verified = facts(&[path, "--verify"]);
        assert_eq!(verified["image"]["layers_verified"], true, "{path}");
        verified["image"].as_object_mut().unwrap().remove("layers_verified");
        assert_eq!(verified, expected, "{path} --verify");
    }
}

#[test]
fn what_was_resolved_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let mut parts = Parts::default();
    let image = parts.image(&layers(), "amd64", Packing::Gzip);
    let config = parts.manifest(&image)["config"]["digest"].as_str().unwrap().to_owned();
    let manifest = image["digest"].as_str().unwrap().to_owned();
    let archive = write(&dir, "x.tar", &parts.top(&[image]).archive());
    run(rdmaprep().args(["inspect", &archive]))
        .expect(0)
        .prints(&format!("oci-archive:{archive}\n"))
        .prints(&config)
        .prints(&manifest);
    run(rdmaprep().args(["check", &archive, "--verify"])).expect(0).prints(&format!(
        "oci-archive:{archive} ({}, manifest {}, layers verified)",
        &config[..19],
        &manifest[..19]
    ));
    // Both halves name the same image, so the Docker half's digest is known from the other.
    for parts in [classic_save(&layers(), NAME), containerd_save(&layers(), NAME)] {
        let path = write(&dir, "both.tar", &parts.archive());
        let json = run(rdmaprep().args(["inspect", &path, "--format", "json"]));
        let facts: Value = serde_json::from_str(&json.expect(0).stdout).unwrap();
        let digest = facts["image"]["manifest_digest"].as_str().expect("a manifest digest");
        let manifest = parts.manifest(&json!({ "digest": digest }));
        assert_eq!(manifest["config"]["digest"], facts["image"]["id"]);
        assert_eq!(facts["image"]["repo_tags"], json!([NAME]));
    }
}

/// Case F07: an OCI half without layers, in a wrong order, with wrong sizes.
#[test]
fn a_broken_oci_half_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let layers = layers();
    let good = classic_save(&layers, NAME);
    let expected = facts(&[&write(&dir, "good.tar", &good.archive())]);
    type Break = fn(&mut Value);
    let breaks: [(&str, Break); 4] = [
        ("no layers", |manifest| manifest["layers"] = json!([])),
        ("null layers", |manifest| manifest["layers"] = Value::Null),
        ("wrong order", |manifest| manifest["layers"].as_array_mut().unwrap().reverse()),
        ("wrong sizes", |manifest| manifest["layers"][0]["size"] = 1.into()),
    ];
    for (what, broken) in breaks {
        let mut parts = good.clone();
        let index: Value = serde_json::from_slice(&parts.0["index.json"]).unwrap();
        let mut manifest = parts.manifest(&index["manifests"][0]);
        broken(&mut manifest);
        let entry = parts.json_blob(&manifest, OCI_MANIFEST);
        parts.top(std::slice::from_ref(&entry));
        let path = write(&dir, "broken.tar", &parts.archive());
        assert_eq!(facts(&[&path]), expected, "{what}");
        assert_eq!(facts(&[&path, "--verify"])["nccl"], expected["nccl"], "{what}");
        // Without the other half it must be an error where it can be seen, and never an empty image.
        parts.0.remove("manifest.json");
        let path = write(&dir, "alone.tar", &parts.archive());
        let ran = run(rdmaprep().args(["check", &path, "--verify"]));
        match what {
            "wrong sizes" => ran.expect(0),
            "wrong order" => ran.expect(3).says("the image config says sha256:"),
            _ => ran.expect(3).says("the archive names 0 layers, the image config 3"),
        };
    }
    // An OCI half of garbage, and one that names blobs that are not there.
    for index in [json!("garbage"), json!({"manifests": [{"digest": format!("sha256:{}", "0".repeat(64))}]})] {
        let mut parts = good.clone();
        parts.json("index.json", &index);
        assert_eq!(facts(&[&write(&dir, "garbage.tar", &parts.archive())]), expected);
    }
}

/// Case F09.
#[test]
fn platforms_and_attestations() {
    let dir = tempfile::tempdir().unwrap();
    let layers = layers();
    let mut parts = Parts::default();
    let amd64 = parts.image(&layers, "amd64", Packing::Gzip);
    let attestation = parts.attestation(&amd64);
    // A single real image is taken, whatever the order.
    for (name, entries) in
        [("first", [attestation.clone(), amd64.clone()]), ("last", [amd64.clone(), attestation.clone()])]
    {
        let nested = parts.index(&entries);
        for (depth, top) in [("flat", entries.to_vec()), ("nested", vec![nested])] {
            let path = dir.path().join(format!("{name}-{depth}"));
            parts.top(&top).directory(&path);
            run(rdmaprep().args(["check", &path.display().to_string(), "--verify"])).expect(0);
        }
    }
    let single_arm = parts.image(&layers, "arm64", Packing::Gzip);
    let path = write(&dir, "arm.tar", &parts.clone().top(&[single_arm.clone(), attestation.clone()]).archive());
    run(rdmaprep().args(["inspect", &path])).expect(0).prints("linux/arm64");
    run(rdmaprep().args(["inspect", &path, "--platform", "linux/amd64"]))
        .expect(3)
        .says("it has no image for linux/amd64")
        .says("available: linux/arm64");

    let mut riscv = parts.image(&layers, "riscv64", Packing::Plain);
    riscv["platform"].as_object_mut().unwrap().remove("os");
    let index = parts.index(&[attestation.clone(), single_arm.clone(), amd64.clone(), riscv]);
    let path = write(&dir, "several.tar", &parts.clone().top(&[named(&index, "docker.io/example/train:1")]).archive());
    for (asked, shown) in
        [("linux/arm64", "linux/arm64"), ("linux/x86_64", "linux/amd64"), ("linux/riscv64", "linux/riscv64")]
    {
        run(rdmaprep().args(["inspect", &path, "--platform", asked])).expect(0).prints(shown);
    }
    let here = Platform::of_this_machine().to_string();
    run(rdmaprep().args(["inspect", &path])).expect(0).prints(&here);
    run(rdmaprep().args(["inspect", &path, "--platform", "linux/s390x"]))
        .expect(3)
        .says("available: linux/amd64, linux/arm64, linux/riscv64");

    // Only the OCI half of `docker save` has the second platform.
    let index = parts.index(&[amd64.clone(), single_arm.clone()]);
    let manifest = docker_manifest(&parts, &amd64, NAME);
    let both = parts.top(&[named(&index, "docker.io/example/train:1")]).json("manifest.json", &manifest).archive();
    let path = write(&dir, "both.tar", &both);
    run(rdmaprep().args(["inspect", &path])).expect(0).prints("linux/amd64");
    run(rdmaprep().args(["inspect", &path, "--platform", "linux/arm64"])).expect(0).prints("linux/arm64");
    run(rdmaprep().args(["inspect", &path, "--platform", "linux/s390x"])).expect(3).says("linux/amd64, linux/arm64");
}

#[test]
fn several_images_need_a_selector() {
    let dir = tempfile::tempdir().unwrap();
    let mut parts = Parts::default();
    let mut old = Fixture::good();
    old.remove("usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5").nccl("2.17.1+cuda12.1");
    let good = parts.image(&layers(), "amd64", Packing::Gzip);
    let old = parts.image(&[old.layer()], "amd64", Packing::Gzip);
    parts.top(&[named(&good, "docker.io/example/train:1"), named(&old, "docker.io/example/train:0")]);
    parts.directory(&dir.path().join("oci"));
    let path = format!("oci:{}", dir.path().join("oci").display());
    run(rdmaprep().args(["check", &path]))
        .expect(3)
        .says("it has several images: choose one by appending :NAME")
        .says("it has: docker.io/example/train:0, docker.io/example/train:1");
    for select in ["1", "example/train:1", "docker.io/example/train:1", good["digest"].as_str().unwrap()] {
        run(rdmaprep().args(["check", &format!("{path}:{select}")])).expect(0).prints(&format!("{path}:{select} ("));
    }
    run(rdmaprep().args(["check", &format!("{path}:0")])).expect(1).prints("NCCL 2.17.1");
    run(rdmaprep().args(["check", &format!("{path}:2")])).expect(3).says("it has no image \"2\"");
    // The Docker half.
    let mut both = docker_manifest(&parts, &good, "example/train:1");
    both.as_array_mut().unwrap().extend(docker_manifest(&parts, &old, "example/train:0").as_array().unwrap().clone());
    let path = write(&dir, "two.tar", &parts.json("manifest.json", &both).archive());
    run(rdmaprep().args(["check", &path])).expect(3).says("it has: example/train:1, example/train:0");
    run(rdmaprep().args(["check", &format!("{path}:example/train:0")])).expect(1).prints("NCCL 2.17.1");
}

#[test]
fn digests_are_verified() {
    let dir = tempfile::tempdir().unwrap();
    let layers = layers();
    let mut parts = Parts::default();
    let image = parts.image(&layers, "amd64", Packing::Gzip);
    parts.top(std::slice::from_ref(&image));
    let manifest = parts.manifest(&image);
    let (config, layer) = (blob_name(&manifest["config"]), blob_name(&manifest["layers"][0]));
    // What is read whole is always verified; a layer when asked.
    for (what, name, verify_only) in
        [("manifest", blob_name(&image), false), ("config", config, false), ("layer", layer, true)]
    {
        let mut broken = parts.clone();
        let changed = match what {
            "layer" => pack(&layers[1], Packing::Gzip),
            _ => [broken.0[&name].clone(), b" ".to_vec()].concat(),
        };
        broken.0.insert(name.clone(), changed.clone());
        let path = dir.path().join(what);
        broken.directory(&path);
        for source in [path.display().to_string(), write(&dir, "broken.tar", &broken.archive())] {
            let plain = run(rdmaprep().args(["inspect", &source]));
            let ran = run(rdmaprep().args(["inspect", &source, "--verify"]));
            assert_eq!(plain.code, Some(if verify_only { 0 } else { 3 }), "{what}: {}", plain.stderr);
            // Both digests.
            ran.expect(3).says(&digest(&changed)).says(&name.replace("blobs/sha256/", "sha256:"));
        }
    }
    // A layer that is what the manifest says and not what the config says, in every source that has streams.
    let mut wrong = layers.clone();
    wrong[0] = tar_of(&[("etc/x", b"x".as_slice())]);
    let (mut oci, mut docker) = (Parts::default(), classic_save(&layers, NAME));
    let config = oci.json_blob(&config_of(&layers, "amd64"), "x/config");
    let blobs: Vec<Value> = wrong.iter().map(|layer| oci.blob(&pack(layer, Packing::Zstd), "x/layer")).collect();
    let image = oci.json_blob(&json!({"schemaVersion": 2, "config": config, "layers": blobs}), OCI_MANIFEST);
    oci.top(&[image]);
    let first = format!("blobs/sha256/{}", digest(&layers[0]).trim_start_matches("sha256:"));
    docker.0.insert(first, wrong[0].clone());
    let old = old_save(&layers, NAME);
    let mut old_broken = old_save(&wrong, NAME);
    // The right config around the wrong layer: names are of the same length, so the bytes can be swapped.
    let (from, to) = (
        serde_json::to_vec(&config_of(&wrong, "amd64")).unwrap(),
        serde_json::to_vec(&config_of(&layers, "amd64")).unwrap(),
    );
    assert!(from.len() == to.len() && !old.is_empty());
    replace(&mut old_broken, &from, &to);
    let names = [&from, &to].map(|config| digest(config).trim_start_matches("sha256:").as_bytes().to_vec());
    replace(&mut old_broken, &names[0], &names[1]);
    fix_checksums(&mut old_broken);
    for (name, archive) in [("oci", oci.archive()), ("docker", docker.archive()), ("old", old_broken)] {
        for packing in [Packing::Plain, Packing::Gzip] {
            let path = write(&dir, name, &pack(&archive, packing));
            run(rdmaprep().args(["inspect", &path])).expect(0);
            run(rdmaprep().args(["inspect", &path, "--verify"]))
                .expect(3)
                .says(&digest(&wrong[0]))
                .says(&digest(&layers[0]));
        }
    }
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let places: Vec<usize> =
        bytes.windows(from.len()).enumerate().filter(|(_, w)| *w == from).map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to));
}

/// Corrects the checksums of headers whose name was changed.
fn fix_checksums(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(512) {
        if &block[257..262] == b"ustar" {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes().copy_from_slice(block);
            header.set_cksum();
            block.copy_from_slice(header.as_bytes());
        }
    }
}

/// Case F11: what is not known is said, not skipped.
#[test]
fn an_unknown_compression_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for (codec, magic) in [("xz", b"\xfd7zXZ\0rest".as_slice()), ("bzip2", b"BZh91AY")] {
        let mut parts = Parts::default();
        let config = parts.json_blob(&config_of(&[magic.to_vec()], "amd64"), "x/config");
        let layer = parts.blob(magic, "application/vnd.oci.image.layer.v1.tar+zstd");
        let image = parts.json_blob(&json!({"schemaVersion": 2, "config": config, "layers": [layer]}), OCI_MANIFEST);
        let path = write(&dir, codec, &parts.top(&[image]).archive());
        run(rdmaprep().args(["check", &path]))
            .expect(3)
            .says(&format!("compressed with {codec}, which is not supported (known: none, gzip, zstd)"));
    }
}

fn image_of(layers: &[Vec<u8>]) -> Image {
    let archive = containerd_save(layers, NAME).archive();
    let options = ReadOptions { verify: true, ..ReadOptions::default() };
    read_stream(archive.as_slice(), &options, &harvest).unwrap().0
}

/// Case F12, through whole images.
#[test]
fn opaque_directories_and_whiteouts() {
    let directory = "usr/lib/x86_64-linux-gnu/libibverbs";
    let marker = (format!("{directory}/.wh..wh..opq"), b"".as_slice());
    let erdma = (format!("{directory}/liberdma-rdmav34.so"), b"ELF".as_slice());
    for order in [[marker.clone(), erdma.clone()], [erdma, marker]] {
        let image = image_of(&[Fixture::good().layer(), tar_of(&order)]);
        assert_eq!(image.rootfs.list(directory), ["liberdma-rdmav34.so"]);
        let facts = inspect(&image, "x".to_owned()).unwrap();
        assert_eq!(facts.verbs.providers.iter().map(|p| p.driver.as_str()).collect::<Vec<_>>(), ["erdma"]);
    }
    let whole = tar_of(&[("usr/lib/x86_64-linux-gnu/.wh.libibverbs", b"".as_slice())]);
    let facts = inspect(&image_of(&[Fixture::good().layer(), whole]), "x".to_owned()).unwrap();
    assert!(facts.verbs.providers.is_empty());
}

/// Case F15, through whole images.
#[test]
fn hard_links_keep_their_content() {
    let link = |path: &str, target: &str| {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        tar.append_link(&mut header, path, target).unwrap();
        tar.into_inner().unwrap()
    };
    let library = "usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5";
    // Its own directory has no entry.
    let linked = link("opt/deep/libnccl.so.2", library);
    let whiteout = tar_of(&[("usr/lib/x86_64-linux-gnu/.wh.libnccl.so.2.21.5", b"".as_slice())]);
    let overwrite = tar_of(&[(library, b"NCCL version 2.5.6+cuda10.1\n".as_slice())]);
    for (top, system) in [(whiteout, None), (overwrite, Some("2.5.6"))] {
        let image = image_of(&[Fixture::good().layer(), linked.clone(), top]);
        let facts = inspect(&image, "x".to_owned()).unwrap();
        let version =
            |path: &str| facts.nccl.iter().find(|copy| copy.path == path).and_then(|copy| copy.version.as_deref());
        assert_eq!(version("/opt/deep/libnccl.so.2"), Some("2.21.5"));
        assert_eq!(version(&format!("/{library}")), system);
    }
    let image = image_of(&[Fixture::good().layer(), link("opt/x", "opt/nothing")]);
    assert_eq!(image.rootfs.dangling_hard_links(), ["opt/x"]);
}

fn unpack(layer: &[u8], path: &Path) {
    tar::Archive::new(layer).unpack(path).unwrap();
}

#[test]
fn a_root_directory() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    unpack(&Fixture::good().layer(), &root);
    std::fs::create_dir(root.join("lib64")).unwrap();
    std::fs::write(root.join("lib64/ld-linux-x86-64.so.2"), "ELF").unwrap();
    // Links that lead out of it are links, and nothing is read through them.
    std::fs::write(dir.path().join("libnccl.so.2.99.9"), "NCCL version 2.99.9+cuda13.0\n").unwrap();
    std::os::unix::fs::symlink("../libnccl.so.2.99.9", root.join("libnccl.so.2")).unwrap();
    std::os::unix::fs::symlink("..", root.join("up")).unwrap();
    let path = root.display().to_string();
    for reference in [path.clone(), format!("rootfs:{path}"), format!("dir:{path}")] {
        let mut found = facts(&[&reference]);
        assert_eq!(found["config"]["missing"], true);
        assert_eq!(found["image"]["architecture"], "amd64");
        assert_eq!(found["image"]["id"], "");
        let expected = facts(&[&write(&dir, "good.tar", &Fixture::good().archive())]);
        for key in ["packages", "verbs", "nccl", "distro", "ofed"] {
            assert_eq!(found[key].take(), expected[key], "{key}");
        }
    }
    run(rdmaprep().args(["inspect", &path])).expect(0).prints("unknown: there is no config");
    // No config: what it would say is unknown, and an unknown never passes.
    run(rdmaprep().args(["check", &path]))
        .expect(3)
        .prints(&format!("rootfs:{path} (no image id)"))
        .prints("unknown  image-config")
        .prints("a root directory has no config");
    run(rdmaprep().args(["inspect", &path, "--platform", "linux/arm64"])).expect(3).says("available: linux/amd64");
    run(rdmaprep().args(["inspect", &format!("{path}:x")])).expect(2).says("is a root directory");
    run(rdmaprep().args(["inspect", &format!("rootfs:{path}/etc/os-release")])).expect(3).says("opening");
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    run(rdmaprep().args(["inspect", &empty.display().to_string()])).expect(3).says("neither an OCI layout");
}

/// Paths in a layout never lead out of it.
#[test]
fn a_layout_that_points_outside() {
    let dir = tempfile::tempdir().unwrap();
    let layer = Fixture::good().layer();
    write(&dir, "layer.tar", &layer);
    let mut parts = classic_save(&[layer], NAME);
    let mut manifest: Value = serde_json::from_slice(&parts.0["manifest.json"]).unwrap();
    manifest[0]["Layers"][0] = "../layer.tar".into();
    let path = dir.path().join("evil");
    parts.json("manifest.json", &manifest).directory(&path);
    run(rdmaprep().args(["inspect", &path.display().to_string()])).expect(3).says("../layer.tar");
    let index: Value = serde_json::from_slice(&parts.0["index.json"]).unwrap();
    let mut manifest = parts.manifest(&index["manifests"][0]);
    manifest["config"]["digest"] = "sha256:../../../../etc/passwd".into();
    parts.0.remove("manifest.json");
    let entry = parts.json_blob(&manifest, OCI_MANIFEST);
    let path = write(&dir, "evil.tar", &parts.top(&[entry]).archive());
    run(rdmaprep().args(["inspect", &path])).expect(3).says("cannot be verified");
}

/// A cut archive is never an image with fewer files.
#[test]
fn cut_archives() {
    let archive = classic_save(&layers(), NAME).archive();
    let dir = tempfile::tempdir().unwrap();
    for cut in [600, archive.len() / 3, archive.len() / 2, archive.len() - 1100] {
        let path = write(&dir, "cut.tar", &archive[..cut]);
        run(rdmaprep().args(["inspect", &path])).expect(3).says("docker save -o FILE IMAGE");
    }
}

/// Threads must not show in the result.
#[test]
fn many_layers_in_parallel_are_deterministic() {
    let mut layers = vec![Fixture::good().layer()];
    for at in 0..40 {
        layers.push(tar_of(&[("opt/last", format!("{at}").repeat(at * 500).as_bytes()), (&format!("opt/{at}"), b"x")]));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir, "many.tar", &containerd_save(&layers, NAME).archive());
    let first = facts(&[&path]);
    assert_eq!(first["image"]["layers"].as_array().unwrap().len(), 41);
    for _ in 0..5 {
        assert_eq!(facts(&[&path]), first);
    }
    let streamed =
        facts(&[&write(&dir, "many.tar.gz", &pack(&containerd_save(&layers, NAME).archive(), Packing::Gzip))]);
    assert_eq!(streamed, first);
}

#[test]
fn indexes_end() {
    // Indexes cannot name themselves, but they can be nested without an end.
    let mut parts = Parts::default();
    let mut index = parts.image(&layers(), "amd64", Packing::Plain);
    for _ in 0..10 {
        index = parts.index(&[index]);
    }
    let archive = parts.top(&[index]).archive();
    let error = read_stream(archive.as_slice(), &ReadOptions::default(), &harvest).unwrap_err();
    assert!(matches!(error, ImageError::EndlessIndex), "{error:?}");
}

/// What a real tool writes, from the same image.
#[test]
fn what_skopeo_writes() {
    if std::process::Command::new("skopeo").arg("--version").output().is_err() {
        return say_skipped("skopeo is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let archive = write(&dir, "x.tar", &classic_save(&layers(), NAME).archive());
    let mut expected = facts(&[&archive]);
    let place = |name: &str| format!("{name}:{}", dir.path().join(name).display());
    // The policy lets everything in, as the test trusts what it made itself.
    let copy = |args: &[&str]| must("skopeo", &[&["--insecure-policy", "copy", "-q"], args].concat());
    copy(&[&format!("docker-archive:{archive}"), &format!("{}:v1", place("oci"))]);
    copy(&["--dest-compress-format", "zstd", &format!("{}:v1", place("oci")), &format!("{}:v2", place("oci-archive"))]);
    copy(&[&format!("{}:v1", place("oci")), &format!("{}:{NAME}", place("docker-archive"))]);
    for (source, reference) in [
        (place("oci"), format!("{}:v1", place("oci"))),
        (dir.path().join("oci").display().to_string(), format!("{}:v1", place("oci"))),
        (place("oci-archive"), format!("{}:v2", place("oci-archive"))),
        (place("docker-archive"), format!("{}:{NAME}", place("docker-archive"))),
    ] {
        for reference in [source, reference] {
            let mut found = facts(&[&reference, "--verify"]);
            assert_eq!(found["image"]["layers_verified"].take(), true);
            // skopeo writes the config anew, with fields in another order.
            for facts in [&mut found, &mut expected] {
                facts["image"]["id"] = Value::Null;
                facts["image"]["layers_verified"] = Value::Null;
            }
            assert_eq!(found, expected, "{reference}");
        }
    }
}

/// The daemon: what it holds by name, bare or not; the bytes where `--verify` or another platform asks for them.
#[test]
fn the_daemon_as_a_source() {
    if !std::process::Command::new("docker").arg("version").output().is_ok_and(|output| output.status.success()) {
        return say_skipped("no Docker engine answers");
    }
    let dir = tempfile::tempdir().unwrap();
    let name = format!("rdmaprep-test/sources-{}:1", std::process::id());
    let archive = write(&dir, "x.tar", &classic_save(&layers(), &name).archive());
    must("docker", &["load", "-q", "-i", &archive]);
    let ran: Vec<Ran> = [
        vec!["check", &name, "--verify"],
        vec!["check", &name],
        vec!["inspect", &name, "--platform", "linux/amd64"],
        vec!["inspect", &name, "--platform", "linux/arm64"],
    ]
    .iter()
    .map(|args| run(rdmaprep().args(args)))
    .collect();
    let [plain, verified] = [vec![name.as_str()], vec![name.as_str(), "--verify"]].map(|args| facts(&args));
    must("docker", &["rmi", &name]);
    ran[0].expect(0).prints(&format!("docker-daemon:{name} (sha256:")).prints("layers verified");
    ran[1].expect(0);
    ran[2].expect(0).prints("linux/amd64");
    ran[3].expect(3).says("it has no image for linux/arm64").says("available: linux/amd64");
    assert_eq!(plain["nccl"], verified["nccl"]);
    assert_eq!(plain["image"]["layers"], verified["image"]["layers"]);
}
