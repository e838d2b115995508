//! The plan of a migration of a mesh.

use anyhow::Context as _;
use navarch_answers::STACK;
use navarch_migration::{Plan, plan};

use super::super::mesh::Mesh;
use super::super::progress::Progress;

impl Mesh {
    /// Plans the migration of namespaces.
    ///
    /// # Errors
    /// If a namespace does not exist.
    pub(super) fn plan(&self, namespaces: &[String]) -> anyhow::Result<Plan> {
        // Translation is deeply recursive.
        let made = std::thread::scope(|scope| {
            let make = || {
                let progress = Progress::begin("reading policies and routes");
                let mut show = |title: &str| progress.set_text(format!("comparing: {title}"));
                plan(&self.objects, &self.settings, namespaces, &mut show)
            };
            let thread = std::thread::Builder::new()
                .name("migration plan".to_owned())
                .stack_size(STACK)
                .spawn_scoped(scope, make)
                .context("failed to start the planning thread")?;
            let made = thread.join();
            made.map_err(|_| anyhow::anyhow!("the planning thread panicked; see the log above"))
        })?;
        Ok(made?)
    }
}
