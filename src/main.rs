use rdmaprep::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let f = std::fs::File::open(&a[1]).unwrap();
    let t = std::time::Instant::now();
    let image = image::archive::read_archive(f, None, &inspect::harvest).unwrap();
    let facts = inspect::inspect(&image, a[1].clone()).unwrap();
    tracing::info!("{:?}", t.elapsed());
    let plan = plan::plan_swap(
        &facts,
        None,
        &fabric::erdma::ERDMA,
        &plan::SwapOptions {
            repository: fabric::RepositoryChoice {
                mirror: Some(a[2].clone()),
                suite: Some("bookworm/erdma".into()),
                vpc: false,
            },
            ..Default::default()
        },
    )
    .unwrap();
    use std::io::Write;
    let mut facts = facts;
    facts.packages.list.retain(|p| p.held || p.is_mlnx_build());
    writeln!(
        std::io::stderr(),
        "{} {:?}",
        serde_json::to_string_pretty(&facts).unwrap(),
        t.elapsed()
    )
    .unwrap();
    write!(std::io::stdout(), "{}", dockerfile::render_dockerfile(&plan)).unwrap();
}
