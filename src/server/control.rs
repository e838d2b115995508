//! The port of ControlZ.

use super::Config;
use super::boot::Boot;
use super::http::{HttpPort, OpenHttpPort};
use crate::admin::{AdminState, control_routes};
use navarch_net::budget::Budget;
use navarch_net::port::{Port, PortLimits};

/// Maximum connections of the port, which operators and their tools use.
const MAX_CONNECTIONS: usize = 32;
/// Memory of unread responses.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Serves ControlZ. The process continues without its port, as istiod does: another process of the
/// machine may use it.
pub(super) async fn start(config: &Config, state: &AdminState, boot: &mut Boot) {
    let listener = match config.ctrlz.bind() {
        Ok(Some(listener)) => listener,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(address = %config.ctrlz, %error, "failed to listen on the ControlZ port");
            return;
        }
    };

    let port = Port::new(
        "ctrlz",
        PortLimits::plain(MAX_CONNECTIONS),
        boot.rejections.clone(),
    );
    let open = OpenHttpPort {
        listener,
        port,
        answers: Budget::new(MAX_ANSWER_BYTES),
    };
    let routes = control_routes(
        state.clone(),
        config.log_scopes.clone(),
        config.shown_variables.clone(),
    );
    let port = HttpPort {
        open,
        grpc: None,
        tls: None,
        routes,
    };

    boot.spawn("ctrlz", port.serve(boot.stop.clone()));
}
