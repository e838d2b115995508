//! Turns the `.proto` files of Envoy, xDS and Istio into descriptors, and those that the code names
//! into Rust: of 2,200 types it needs half, and all would be compiled by everybody who builds
//! any of the programs.
//!
//! Envoy's come out of the published crate `envoy-types`. Nothing else of that crate is used: its
//! own Rust types keep maps in hash order, which would change the encoded bytes from run to run.
//! Istio's, and the few that the crate lacks, are under `proto/`.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to a build script by environment alone"
)]

mod closure;

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use prost_types::DescriptorProto;
use tonic_prost_build::{Config, manual};

/// The published crate whose `.proto` files are compiled.
const PROTO_CRATE: &str = "envoy-types";

/// The roots inside that crate, relative to its `proto` folder, that hold files to compile or
/// import.
const CRATE_ROOTS: [&str; 9] = [
    "data-plane-api",
    "xds",
    "googleapis",
    "cel-spec/proto",
    "client_model",
    "opentelemetry-proto",
    "protoc-gen-validate",
    "ratelimit/api",
    "protobuf",
];

/// The folders whose files are compiled whether or not another file imports them.
const COMPILED: [&str; 2] = ["data-plane-api/envoy", "xds"];

/// The packages whose types the code names, a line each. All others exist as descriptors only, by
/// which EnvoyFilters and JSON are read. A type that the code needs and that "cannot be found in"
/// a package is there once the package has a line.
const PACKAGES: &str = include_str!("../packages.txt");
/// The line of the package without a name.
const NO_NAME: &str = "-";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=Cargo.toml");
    println!("cargo::rerun-if-changed=packages.txt");
    println!("cargo::rerun-if-changed=proto");

    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let own =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?)
            .join("proto");
    let published = published_protos()?;

    let mut files = Vec::new();
    for folder in COMPILED {
        gather(&published.join(folder), &mut files)?;
    }

    gather(&own, &mut files)?;

    let mut roots = vec![own];
    roots.extend(
        CRATE_ROOTS
            .iter()
            .map(|root| published.join(root))
            .filter(|root| root.is_dir()),
    );

    roots.push(protoc_bin_vendored::include_path()?);

    compile_messages(&files, &roots, &out)?;
    write_raw_service(&out)?;
    Ok(())
}

/// The `proto` folder of [`PROTO_CRATE`] in cargo's registry.
fn published_protos() -> Result<PathBuf, Box<dyn Error>> {
    // Not `--filter-platform`: the crate is declared for a platform that does not exist, so that it
    // is never compiled.
    let metadata = cargo_metadata::MetadataCommand::new()
        .other_options(["--locked".to_owned()])
        .exec()?;
    let package = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == PROTO_CRATE)
        .ok_or("envoy-types is not among the dependencies")?;
    let root = package
        .manifest_path
        .parent()
        .ok_or("a manifest stands in a folder")?;
    let protos = root.as_std_path().join("proto");

    if protos.join("data-plane-api/envoy").is_dir() {
        Ok(protos)
    } else {
        Err(format!(
            "{} holds no Envoy protos; another version of {PROTO_CRATE}?",
            protos.display()
        )
        .into())
    }
}

/// Adds every `.proto` file under `folder`, ordered by path.
fn gather(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    let mut entries = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>, std::io::Error>>()?;
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            gather(&entry, files)?;
        } else if entry
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            files.push(entry);
        }
    }
    Ok(())
}

/// Writes the descriptor set `wire.binpb` of all files, and generates the types and services of
/// [`PACKAGES`], with what they contain, and `wire.rs` that includes them.
fn compile_messages(
    files: &[PathBuf],
    roots: &[PathBuf],
    out: &Path,
) -> Result<(), Box<dyn Error>> {
    let services = tonic_prost_build::configure()
        .build_client(true)
        .build_server(true);
    let mut config = Config::new();
    config
        .protoc_executable(protoc_bin_vendored::protoc_bin_path()?)
        .out_dir(out)
        .include_file("wire.rs")
        .file_descriptor_set_path(out.join("wire.binpb"))
        // Envoy's comments are reStructuredText: rustdoc would take their code blocks for tests of
        // ours.
        .skip_source_info()
        .btree_map(["."])
        .bytes(["."])
        .enable_type_names()
        .service_generator(services.service_generator());

    let mut descriptors = config.load_fds(files, roots)?;
    for file in descriptors
        .file
        .iter_mut()
        .filter(|file| file.syntax() == "proto3")
    {
        file.message_type.iter_mut().for_each(say_packed);
    }

    let packages: BTreeSet<&str> = PACKAGES
        .lines()
        .map(|line| if line == NO_NAME { "" } else { line })
        .collect();
    closure::retain(&mut descriptors, &packages)?;
    config.compile_fds(descriptors)?;

    Ok(())
}

/// Marks repeated numbers of a proto3 message as packed, which is the default. prost-build 0.14
/// treats a field with any option (Envoy's fields have some for validation) as if packing were off.
fn say_packed(message: &mut DescriptorProto) {
    for options in message
        .field
        .iter_mut()
        .filter_map(|field| field.options.as_mut())
    {
        options.packed.get_or_insert(true);
    }
    message.nested_type.iter_mut().for_each(say_packed);
}

/// Generates the aggregated discovery service once more, with the responses of `src/raw.rs`.
fn write_raw_service(out: &Path) -> Result<(), Box<dyn Error>> {
    let method = |name: &str, route: &str, input: &str, output: &str| {
        manual::Method::builder()
            .name(name)
            .route_name(route)
            .input_type(format!("crate::envoy::service::discovery::v3::{input}"))
            .output_type(format!("crate::raw::{output}"))
            .codec_path("tonic_prost::ProstCodec")
            .client_streaming()
            .server_streaming()
            .build()
    };

    let service = manual::Service::builder()
        .name("AggregatedDiscoveryService")
        .package("envoy.service.discovery.v3")
        .method(method(
            "stream_aggregated_resources",
            "StreamAggregatedResources",
            "DiscoveryRequest",
            "RawDiscoveryResponse",
        ))
        .method(method(
            "delta_aggregated_resources",
            "DeltaAggregatedResources",
            "DeltaDiscoveryRequest",
            "RawDeltaDiscoveryResponse",
        ))
        .build();

    // It names its file after the package, as the messages' file is named: a folder of its own
    // keeps them apart.
    let folder = out.join("raw");
    fs::create_dir_all(&folder)?;
    manual::Builder::new().out_dir(folder).compile(&[service]);

    Ok(())
}
