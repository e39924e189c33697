//! Writes images in the layouts that exist: blobs, manifests and indexes made by hand, so that each can be broken.

use super::image_fixture::{sha256, tar_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Parts of a layout by name.
#[derive(Default, Clone)]
pub struct Parts(pub BTreeMap<String, Vec<u8>>);

/// How a layer is packed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
    /// Zstandard behind a skippable frame, as zstd:chunked has them.
    ZstdSkippable,
}

pub fn pack(layer: &[u8], packing: Packing) -> Vec<u8> {
    match packing {
        Packing::Plain => layer.to_vec(),
        Packing::Gzip => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(layer).unwrap();
            gzip.finish().unwrap()
        }
        Packing::Zstd => zstd::encode_all(layer, 1).unwrap(),
        Packing::ZstdSkippable => {
            [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd::encode_all(layer, 1).unwrap()].concat()
        }
    }
}

pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", sha256(bytes))
}

/// The config of an image of these layers.
pub fn config_of(layers: &[Vec<u8>], architecture: &str) -> Value {
    json!({"architecture": architecture, "os": "linux",
        "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|layer| digest(layer)).collect::<Vec<_>>()}})
}

impl Parts {
    /// Adds a blob and gives its descriptor.
    pub fn blob(&mut self, bytes: &[u8], media_type: &str) -> Value {
        self.0.insert(format!("blobs/sha256/{}", sha256(bytes)), bytes.to_vec());
        json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()})
    }

    pub fn json_blob(&mut self, value: &Value, media_type: &str) -> Value {
        self.blob(&serde_json::to_vec(value).unwrap(), media_type)
    }

    /// Adds an image and gives its manifest's descriptor, with the platform in it.
    pub fn image(&mut self, layers: &[Vec<u8>], architecture: &str, packing: Packing) -> Value {
        let config = self.json_blob(&config_of(layers, architecture), "application/vnd.oci.image.config.v1+json");
        let layer_type = match packing {
            // Containers/image#2906: Docker's prefix, OCI's suffix.
            Packing::Zstd | Packing::ZstdSkippable => "application/vnd.docker.image.rootfs.diff.tar.zstd",
            // It lies, as some do.
            Packing::Plain | Packing::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
        };
        let layers: Vec<Value> = layers.iter().map(|layer| self.blob(&pack(layer, packing), layer_type)).collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers});
        let mut descriptor = self.json_blob(&manifest, OCI_MANIFEST);
        descriptor["platform"] = json!({"os": "linux", "architecture": architecture});
        descriptor
    }

    /// Adds what BuildKit puts beside an image.
    pub fn attestation(&mut self, of: &Value) -> Value {
        let config = self.json_blob(&json!({"architecture": "unknown", "os": "unknown"}), "x/config");
        let layer =
            self.json_blob(&json!({"_type": "https://in-toto.io/Statement/v0.1"}), "application/vnd.in-toto+json");
        let manifest = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]});
        let mut descriptor = self.json_blob(&manifest, OCI_MANIFEST);
        descriptor["platform"] = json!({"os": "unknown", "architecture": "unknown"});
        descriptor["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest",
            "vnd.docker.reference.digest": of["digest"]});
        descriptor
    }

    /// Adds an index as a blob.
    pub fn index(&mut self, manifests: &[Value]) -> Value {
        self.json_blob(&json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}), OCI_INDEX)
    }

    /// Writes `index.json`.
    pub fn top(&mut self, manifests: &[Value]) -> &mut Parts {
        self.json("oci-layout", &json!({"imageLayoutVersion": "1.0.0"}));
        self.json("index.json", &json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}))
    }

    pub fn json(&mut self, name: &str, value: &Value) -> &mut Parts {
        self.0.insert(name.to_owned(), serde_json::to_vec(value).unwrap());
        self
    }

    pub fn manifest(&self, descriptor: &Value) -> Value {
        serde_json::from_slice(&self.0[&blob_name(descriptor)]).unwrap()
    }

    pub fn archive(&self) -> Vec<u8> {
        let files: Vec<(&String, &[u8])> = self.0.iter().map(|(name, bytes)| (name, bytes.as_slice())).collect();
        tar_of(&files)
    }

    pub fn directory(&self, path: &Path) {
        for (name, bytes) in &self.0 {
            let path = path.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
}

pub fn blob_name(descriptor: &Value) -> String {
    format!("blobs/sha256/{}", descriptor["digest"].as_str().unwrap().trim_start_matches("sha256:"))
}

/// A descriptor with a name, as an OCI layout's index has it.
pub fn named(descriptor: &Value, name: &str) -> Value {
    let mut descriptor = descriptor.clone();
    descriptor["annotations"]["io.containerd.image.name"] = name.into();
    descriptor["annotations"]["org.opencontainers.image.ref.name"] = name.rsplit(':').next().unwrap().into();
    descriptor
}

/// `docker save` of engine 25 and later with the classic store: plain layers, both halves.
pub fn classic_save(layers: &[Vec<u8>], name: &str) -> Parts {
    let mut parts = Parts::default();
    let image = parts.image(layers, "amd64", Packing::Plain);
    let manifest = docker_manifest(&parts, &image, name);
    let mut entry = named(&image, &format!("docker.io/{name}"));
    entry.as_object_mut().unwrap().remove("platform");
    parts.top(&[entry]).json("manifest.json", &manifest).json("repositories", &json!({}));
    parts
}

/// The archive with the containerd store (default of a new engine 29): gzip layers, an index in the index, an attestation.
pub fn containerd_save(layers: &[Vec<u8>], name: &str) -> Parts {
    let mut parts = Parts::default();
    let image = parts.image(layers, "amd64", Packing::Gzip);
    let attestation = parts.attestation(&image);
    let index = parts.index(&[attestation, image.clone()]);
    let manifest = docker_manifest(&parts, &image, name);
    parts.top(&[named(&index, &format!("docker.io/{name}"))]).json("manifest.json", &manifest);
    parts
}

/// Engine 20.10: `<id>/layer.tar`, and a layer that stands twice is a link.
pub fn old_save(layers: &[Vec<u8>], name: &str) -> Vec<u8> {
    let config = serde_json::to_vec(&config_of(layers, "amd64")).unwrap();
    let config_name = format!("{}.json", sha256(&config));
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, content).unwrap();
    };
    let mut names = Vec::new();
    for (at, layer) in layers.iter().enumerate() {
        let id = format!("{at:064x}");
        add(&format!("{id}/VERSION"), b"1.0");
        add(&format!("{id}/json"), b"{}");
        if !layers[..at].contains(layer) {
            add(&format!("{id}/layer.tar"), layer);
        }
        names.push(format!("{id}/layer.tar"));
    }
    add(&config_name, &config);
    let manifest = json!([{"Config": config_name, "RepoTags": [name], "Layers": names}]);
    add("manifest.json", &serde_json::to_vec(&manifest).unwrap());
    add("repositories", b"{}");
    for (at, layer) in layers.iter().enumerate() {
        if let Some(first) = layers[..at].iter().position(|other| other == layer) {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, format!("{at:064x}/layer.tar"), format!("../{first:064x}/layer.tar")).unwrap();
        }
    }
    tar.into_inner().unwrap()
}

/// `manifest.json` for an image that is in the parts.
pub fn docker_manifest(parts: &Parts, image: &Value, name: &str) -> Value {
    let manifest = parts.manifest(image);
    let layers: Vec<String> = manifest["layers"].as_array().unwrap().iter().map(blob_name).collect();
    json!([{"Config": blob_name(&manifest["config"]), "RepoTags": [name], "Layers": layers}])
}
