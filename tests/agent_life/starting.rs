//! What an agent logs and opens at its start.

use anyhow::{Result, ensure};
use navarch_testkit::wait::until;

use crate::MESH;
use crate::pod::Pod;
use crate::server::Server;

/// The folder of the sockets over which Envoy gets its certificate.
const SDS_FOLDER: &str = "var/run/secrets/workload-spiffe-uds";

#[tokio::test]
async fn the_sds_socket_is_tried_again_while_its_folder_cannot_be_created() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let mut pod = Pod::start_with_file(&server, SDS_FOLDER, "a file in the folder's place")?;
    until("the failure is logged", async || {
        pod.log()
            .contains("failed to listen on a socket; trying again")
    })
    .await;

    pod.remove(SDS_FOLDER)?;
    pod.wait_ready().await?;
    ensure!(pod.processes() == 1, "one Envoy");
    Ok(())
}
