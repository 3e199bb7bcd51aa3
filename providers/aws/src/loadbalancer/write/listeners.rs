//! Listeners of classic balancers, of which AWS changes only the certificate in place.

use std::collections::BTreeSet;

use ccm_kit::call::ErrorKind;
use ccm_kit::split_refused;
use ccm_provider::ProviderError;

use super::{Outputs, send};
use crate::client::elb::Listener;
use crate::client::write::ElbWrite;
use crate::client::{ApiError, DEFAULT_POLICY, Write, is_unavailable};
use crate::loadbalancer::reads::Reads;
use crate::loadbalancer::step::Former;

/// Creates listeners, one by one if AWS refuses some of them. If one is refused, the former one of its port or of its
/// instance port is created again, with its policies: its port stays open.
pub(super) async fn create(
    write: &Write,
    former: &[Former],
    outputs: &mut Outputs,
    reads: &Reads,
) -> Result<(), ProviderError> {
    let Write::Elb(ElbWrite::CreateLoadBalancerListeners { balancer, listeners }) = write else {
        return Err(ProviderError::bug("not the creation of listeners"));
    };
    let create = |listeners: Vec<Listener>| async move {
        let write = ElbWrite::CreateLoadBalancerListeners { balancer: balancer.clone(), listeners };
        send(&Write::Elb(write), reads).await
    };
    let is_refused = |error: &ApiError| error.kind == ErrorKind::Refused;
    let mut refused: Option<ProviderError> = None;
    let answers = split_refused(listeners.clone(), is_refused, |_, _| false, create).await;
    let is_made =
        |answer: &Result<_, ApiError>| answer.as_ref().err().is_none_or(|error| error.kind == ErrorKind::NoAnswer);
    let made = answers.iter().filter(|(_, answer)| is_made(answer)).flat_map(|(listeners, _)| listeners);
    let made: BTreeSet<i32> = made.map(|listener| listener.port).collect();
    outputs.listeners.extend(&made);
    for (listeners, answer) in answers {
        let Err(error) = answer else { continue };
        let replaces = |new: &Listener, old: &Listener| new.port == old.port || new.instance_port == old.instance_port;
        let lost = |old: &Listener| !made.contains(&old.port) && listeners.iter().any(|new| replaces(new, old));
        let lost: Vec<&Former> = former.iter().filter(|(old, _)| lost(old)).collect();
        let error = match lost.is_empty() || !is_refused(&error) {
            true => error.into(),
            false => match again(balancer, &lost, reads).await {
                Ok(()) => super::for_good(write, error),
                Err(second) => {
                    tracing::warn!(balancer, %error, %second, "a port stays closed");
                    error.into()
                }
            },
        };
        refused.get_or_insert(error);
    }
    refused.map_or(Ok(()), Err)
}

/// Creates listeners as they were.
async fn again(balancer: &str, former: &[&Former], reads: &Reads) -> Result<(), ApiError> {
    let listeners = former.iter().map(|(listener, _)| listener.clone()).collect();
    let write = ElbWrite::CreateLoadBalancerListeners { balancer: balancer.to_owned(), listeners };
    send(&Write::Elb(write), reads).await?;
    for (listener, policies) in former {
        if let Err(error) = set_policies(balancer, listener.port, policies, reads).await {
            tracing::warn!(balancer, port = listener.port, %error, "a listener lacks its policies");
        }
    }
    Ok(())
}

/// Gives a new listener policies.
async fn set_policies(balancer: &str, port: i32, policies: &[String], reads: &Reads) -> Result<(), ApiError> {
    if policies.iter().all(|policy| policy == DEFAULT_POLICY) {
        return Ok(());
    }
    let (balancer, policies) = (balancer.to_owned(), policies.to_vec());
    let write = ElbWrite::SetLoadBalancerPoliciesOfListener { balancer, port, policies };
    send(&Write::Elb(write), reads).await.map(drop)
}

/// Sets the certificate of a listener. Without that operation, which upstream never uses, this replaces the listener; the
/// new one, or the former one that is created again, gets the policies.
pub(super) async fn certificate(
    write: &Write,
    former: &Former,
    wanted: &Listener,
    outputs: &mut Outputs,
    reads: &Reads,
) -> Result<(), ProviderError> {
    let error = match send(write, reads).await {
        Err(error) if is_unavailable(&error) => error,
        answer => return answer.map(drop).map_err(Into::into),
    };
    let Write::Elb(ElbWrite::SetLoadBalancerListenerSSLCertificate { balancer, port, .. }) = write else {
        return Err(error.into());
    };
    let delete = ElbWrite::DeleteLoadBalancerListeners { balancer: balancer.clone(), ports: vec![*port] };
    send(&Write::Elb(delete), reads).await?;
    let listeners = vec![wanted.clone()];
    let write = ElbWrite::CreateLoadBalancerListeners { balancer: balancer.clone(), listeners };
    create(&Write::Elb(write), std::slice::from_ref(former), outputs, reads).await?;
    Ok(set_policies(balancer, *port, &former.1, reads).await?)
}
