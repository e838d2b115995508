//! The rules of each of Istio's kinds.

use navarch_api::any_object::AnyObject;
use navarch_api::object::{Object, ObjectMeta};
use navarch_api::validation::{Validate, Verdict};

use super::unreachable;
use crate::analyzer::{Analyzer, Report};
use crate::context::Context;
use crate::kind::Kind;
use crate::message::Message;
use crate::messages;
use crate::parameters::parameters;
use crate::resource::Content;

/// Declares an analyzer for each kind, and how a kind is judged.
macro_rules! schema {
    ($($kind:ident),* $(,)?) => {
        /// One analyzer for each kind: it validates the specs as the webhook does.
        pub(super) static ANALYZERS: &[Analyzer] = &[$(Analyzer {
            name: concat!("schema.ValidationAnalyzer.", stringify!($kind)),
            description: concat!("Runs schema validation as an analyzer on '", stringify!($kind), "' resources"),
            inputs: &[Kind::$kind],
            run: |context, report| report_schema(Kind::$kind, context, report),
        }),*];

        /// The validation of an object by the rules of its kind.
        fn verdict(object: &AnyObject) -> Verdict {
            match object {
                $(AnyObject::$kind(object) => of_spec(object),)*
                _ => Verdict::default(),
            }
        }
    };
}

schema! {
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig, RequestAuthentication, ServiceEntry,
    Sidecar, Telemetry, TrafficExtension, VirtualService, WasmPlugin, WorkloadEntry, WorkloadGroup,
}

/// The validation of a spec; the webhook validates annotations.
fn of_spec<T: Validate>(object: &Object<T>) -> Verdict {
    let meta = ObjectMeta {
        key: object.meta.key.clone(),
        ..ObjectMeta::default()
    };
    object.spec.validate(&meta)
}

/// Tells of the errors and warnings of all objects of a kind.
fn report_schema(kind: Kind, context: &Context, report: &mut Report) {
    for resource in context.each(kind) {
        if let Content::Unreadable(reason) = &resource.content {
            report.add(Message::new(
                &messages::SCHEMA_VALIDATION_ERROR,
                resource,
                parameters![reason],
            ));
        }

        let Content::Istio(object) = &resource.content else {
            continue;
        };

        let Verdict { errors, warnings } = verdict(object);
        for problem in errors {
            let parameters = parameters![problem.to_string()];
            report.add(Message::new(
                &messages::SCHEMA_VALIDATION_ERROR,
                resource,
                parameters,
            ));
        }

        // Of routes that are not reached there are messages of their own.
        for problem in warnings
            .into_iter()
            .filter(|problem| !problem.is_of_reach())
        {
            let parameters = parameters![problem.to_string()];
            report.add(Message::new(
                &messages::SCHEMA_WARNING,
                resource,
                parameters,
            ));
        }

        if let AnyObject::VirtualService(service) = object {
            unreachable::report(resource, &service.spec, report);
        }
    }
}
