//! Reads the settings of ambient mode.

use super::reader::{Reader, VariableError};
use navarch_api::settings::Settings;

/// Settings of ambient mode.
pub(super) fn read(read: &Reader<'_>, settings: &mut Settings) -> Result<(), VariableError> {
    read.flag("PILOT_ENABLE_AMBIENT", &mut settings.ambient)?;
    read.flag(
        "ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES",
        &mut settings.hbone.layered_authorization,
    )?;
    let mut ambient = Settings {
        sidecar_listening_hbone: true,
        ..settings.clone()
    };

    read.flag(
        "PILOT_AUTO_ALLOW_WAYPOINT_POLICY",
        &mut ambient.auto_allow_waypoints,
    )?;
    read.flag(
        "AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY",
        &mut ambient.ambient_dry_run,
    )?;

    read.flag(
        "PILOT_ENABLE_SIDECAR_LISTENING_HBONE",
        &mut ambient.sidecar_listening_hbone,
    )?;
    let hbone = &mut ambient.hbone;
    (
        hbone.sends,
        hbone.ingress_waypoints,
        hbone.waypoints_leave_network,
    ) = (true, true, true);

    read.flag("PILOT_ENABLE_SENDING_HBONE", &mut hbone.sends)?;
    read.flag("PILOT_PREFER_SENDING_HBONE", &mut hbone.is_preferred)?;
    read.flag(
        "ENABLE_INGRESS_WAYPOINT_ROUTING",
        &mut hbone.ingress_waypoints,
    )?;
    read.flag("NAVARCH_SIDECAR_WAYPOINTS", &mut hbone.sidecar_waypoints)?;
    read.flag("AMBIENT_ENABLE_BAGGAGE", &mut hbone.baggage)?;
    read.flag(
        "AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT",
        &mut hbone.waypoints_leave_network,
    )?;

    read.flag(
        "AMBIENT_ENABLE_MULTI_NETWORK_INGRESS",
        &mut hbone.gateways_leave_network,
    )?;
    read.number(
        "PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE",
        &mut hbone.stream_window,
    )?;

    read.number(
        "PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE",
        &mut hbone.connection_window,
    )?;

    if settings.ambient {
        // Without ambient mode istiod enables none of these, whatever their value.
        *settings = ambient;
    }

    Ok(())
}
