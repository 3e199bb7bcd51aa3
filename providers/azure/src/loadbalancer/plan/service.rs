//! The part of one Service in the changes of the shared objects. Pure.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::address::parse_ip;
use ccm_provider::{ErrorClass, ProviderError, ServiceAction};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::super::balancer::{self, Edit};
use super::super::claim::{self, Frontend};
use super::super::env::balancer_name;
use super::super::json::{self, same};
use super::super::members::scheme_of;
use super::super::names::Family;
use super::super::wanted::{Item, Settings, refused};
use super::Planner;
use crate::annotations::{self as keys, Scheme};
use crate::client::id::ArmId;

/// Retry interval of a deletion while reads are late.
const LATE: Duration = Duration::from_secs(2);
/// The reason of events about frontends that stay.
pub(super) const KEPT_FRONTEND: &str = "DeletingFrontendIPConfiguration";

/// An address of a Service: known, or known after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reached {
    Known(IpAddr),
    /// That of a public IP address, or of a frontend.
    Of(ArmId),
}

impl Planner<'_> {
    /// Plans the load balancer and the addresses of a Service that is ensured.
    pub(super) fn ensure(&mut self, place: usize, item: &Item, settings: &Settings) -> Result<(), ProviderError> {
        if let Some(error) = self.unread_former(item) {
            return Err(error.clone());
        }
        let addresses = self.public_ips(item, settings)?;
        let requested: Vec<&str> = addresses.iter().map(|(_, id)| id.as_str()).collect();
        let plain = self.target(item, &requested)?;
        let name = balancer_name(&plain, item.scheme);
        self.check_sku(&name)?;
        let given_up = self.given_up(item, &name)?;
        self.replace_addresses(place, item, &addresses)?;
        let pools = item.families.iter().map(|family| item.pool(&self.wanted.cluster, *family));
        let mut edit = Edit { pools: pools.collect(), ..Edit::of(place, item, self.observed, self.body(&name)) };
        let (mut reached, mut used) = (Vec::new(), Vec::new());
        for family in &item.families {
            let public_ip = addresses.iter().find(|(of, _)| of == family).map(|(_, id)| id);
            let frontend = self.frontend(&name, item, settings, *family, public_ip, &mut edit)?;
            reached.push(frontend.1);
            used.push(frontend.0.clone());
            let id = self.env.balancer_id(&name);
            for rule in settings.rules.iter().filter(|rule| rule.family == *family) {
                if let Some(problem) = balancer::conflict(self.body(&name), &frontend.0, &edit.base, rule) {
                    return Err(refused(problem));
                }
                let pool = id.child("backendAddressPools", &item.pool(&self.wanted.cluster, *family));
                edit.rules.push(balancer::rule(self.env, &id, &pool, &frontend.0, rule));
            }
        }
        edit.probes = settings.probes.iter().map(balancer::probe).collect();
        self.drop_others(&name, item, &used, &mut edit);
        self.check_limits(&plain, &name, &edit)?;
        self.check_lost_links(item, Some(&name), &edit.drops)?;
        edit.waits = self.drop_links(place, item, &self.frontends_of(&name, &edit.drops));
        edit.follows = given_up;
        edit.is_cut_off = self.is_cut_off(item, &edit);
        let first = item.families.iter().position(|family| *family == Family::V4).and_then(|at| used.get(at));
        let linked = first.and_then(|id| ArmId::parse(id).ok());
        match (&settings.link, linked) {
            (Some(link), Some(frontend)) => {
                // The load balancer serves without it.
                if let Err(error) = self.link(place, item, link, &frontend) {
                    self.without.insert(place, error);
                }
            }
            (None, Some(frontend)) if item.may_have_link => self.drop_unused_link(place, item, frontend),
            _ => {}
        }
        self.reached.insert(place, reached);
        self.add_edit(&name, edit);
        // The load balancer of the other kind, or the one that it had before.
        self.leave(place, item, Some(&name));
        self.use_addresses(place, item, settings, &addresses);
        self.release_addresses(place, item, &addresses);
        Ok(())
    }

    /// Plans the end of everything of a Service.
    pub(super) fn delete(&mut self, place: usize, item: &Item) {
        if self.observed.is_late {
            let late = ProviderError::in_progress("Azure does not show yet what was just written", LATE);
            self.failed.insert(place, late);
            return;
        }
        let refused = self.observed.refused.get(&item.key).or_else(|| self.unread_former(item)).cloned();
        if let Some(error) = refused.or_else(|| self.check_lost_links(item, None, &[]).err()) {
            self.failed.insert(place, error);
            return;
        }
        self.leave(place, item, None);
        self.release_addresses(place, item, &[]);
        if let Some(error) = self.unread_addresses(item) {
            self.failed.insert(place, error.clone());
        }
    }

    /// Whether a Service with an address moves to another load balancer, or has left one and is on none.
    fn is_cut_off(&self, item: &Item, edit: &Edit) -> bool {
        let is_without = |body: &Arc<Value>| balancer::claimed(self.observed, item, body).is_empty();
        let is_on_none = || !edit.frontends.is_empty() && self.observed.balancers.iter().all(is_without);
        !item.published.is_empty() && (!edit.follows.is_empty() || is_on_none())
    }

    /// Why the address of a frontend in a group that the Service does not name any more was not read. Without the frontend,
    /// nothing would show the group. An internal Service names none.
    fn unread_former(&self, item: &Item) -> Option<&ProviderError> {
        let own = self.observed.frontends().filter(|frontend| item.names.own(json::name(frontend)));
        let ids = own.filter_map(|frontend| ArmId::parse(json::reference(frontend, "publicIPAddress")).ok());
        let is_named = |id: &ArmId| same(id.group(), &self.env.group) || same(id.group(), &item.public_ip_group);
        let mut former = ids.filter(|id| item.scheme == Scheme::Internal || !is_named(id));
        former.find_map(|id| self.observed.unread_public_ips(id.group()))
    }

    /// Why addresses of a Service may exist that were not read. In a group that the annotation of a Service names by mistake
    /// it has none.
    fn unread_addresses(&self, item: &Item) -> Option<&ProviderError> {
        let of_service = self.observed.unread_public_ips(&item.public_ip_group);
        let is_mistake =
            |error: &&ProviderError| item.published.is_empty() && matches!(error.class(), ErrorClass::Denied { .. });
        self.observed.unread_public_ips(&self.env.group).or_else(|| of_service.filter(|error| !is_mistake(error)))
    }

    /// The frontend of a family: its ID and address. It is added to the edit if it must be made or changed.
    fn frontend(
        &self,
        balancer: &str,
        item: &Item,
        settings: &Settings,
        family: Family,
        public_ip: Option<&ArmId>,
        edit: &mut Edit,
    ) -> Result<(String, Reached), ProviderError> {
        let name = item.names.frontend(family);
        if let Some(present) = self.present_frontend(balancer, item, settings, family, public_ip) {
            if let Some(giver) = self.gives_frontend(item, balancer, present) {
                return Err(self.waiting(giver));
            }
            let id = self.frontend_id(balancer, present);
            let reached = self.reached_by(item, family, public_ip, Some(present), &id);
            return Ok((id.to_string(), reached));
        }
        let body = self.body(balancer);
        let frontends = json::items(body, "frontendIPConfigurations");
        let own = json::named(frontends, &name);
        if let Some(own) = own
            && let Some(used) = claim::other_use(body, json::text(own, &["id"]), &item.names.base)
        {
            return Err(refused(format!("the address of the frontend {name} cannot change: {used} uses it")));
        }
        self.check_given_up(item, family, public_ip)?;
        let is_former = |it: &&Value| {
            item.names.own(json::name(it)) && claim::family_of_frontend(self.observed, item, it) == family
        };
        let former = own.or_else(|| frontends.iter().find(is_former));
        edit.frontends.push(self.new_frontend(balancer, item, settings, family, public_ip, former)?);
        if let Some(ip) = public_ip.filter(|ip| self.index.ip(ip.as_str()).is_none()) {
            edit.needs.push(ip.clone());
        }
        let id = self.env.balancer_id(balancer).child("frontendIPConfigurations", &name);
        let reached = self.reached_by(item, family, public_ip, None, &id);
        Ok((id.to_string(), reached))
    }

    /// The frontend that a Service uses as it is: its own, or that of another one with the requested address.
    pub(super) fn present_frontend(
        &self,
        balancer: &str,
        item: &Item,
        settings: &Settings,
        family: Family,
        public_ip: Option<&ArmId>,
    ) -> Option<&Value> {
        let frontends = json::items(self.body(balancer), "frontendIPConfigurations");
        let own = json::named(frontends, &item.names.frontend(family));
        let fitting = own.filter(|own| self.fits(item, settings, family, public_ip, own));
        let is_shared = |frontend: &&Value| self.is_shared(item, family, public_ip, frontend);
        fitting.or_else(|| frontends.iter().find(is_shared))
    }

    /// Whether an internal Service needs a new frontend, and so its subnet.
    pub(super) fn lacks_frontend(&self, item: &Item) -> bool {
        let (Some(settings), Ok(plain)) = (&item.settings, self.target(item, &[])) else { return false };
        let name = balancer_name(&plain, item.scheme);
        let lacks = |family: &Family| self.present_frontend(&name, item, settings, *family, None).is_none();
        item.families.iter().any(lacks)
    }

    /// Whether a frontend of another Service has the address that this one requests. It may be new in this pass.
    pub(super) fn is_shared(&self, item: &Item, family: Family, public_ip: Option<&ArmId>, frontend: &Value) -> bool {
        if item.names.own(json::name(frontend)) {
            return false;
        }
        match public_ip {
            Some(ip) => same(json::reference(frontend, "publicIPAddress"), ip.as_str()),
            None => {
                claim::frontend(self.observed, item, frontend) == Frontend::Shared
                    && claim::family_of_frontend(self.observed, item, frontend) == family
            }
        }
    }

    pub(super) fn frontend_id(&self, balancer: &str, frontend: &Value) -> ArmId {
        let name = json::name(frontend);
        let own = || self.env.balancer_id(balancer).child("frontendIPConfigurations", name);
        ArmId::parse(json::text(frontend, &["id"])).unwrap_or_else(|_| own())
    }

    /// Whether a frontend has the wanted address.
    pub(super) fn fits(
        &self,
        item: &Item,
        settings: &Settings,
        family: Family,
        public_ip: Option<&ArmId>,
        frontend: &Value,
    ) -> bool {
        match item.scheme {
            Scheme::External => {
                let id = json::reference(frontend, "publicIPAddress");
                public_ip.is_some_and(|wanted| same(wanted.as_str(), id))
            }
            Scheme::Internal => {
                let subnet = json::reference(frontend, "subnet");
                let is_there = !settings.names_subnet || same(subnet, self.env.subnet_id(&settings.subnet).as_str());
                let address = json::property(frontend, "privateIPAddress");
                let is_it = item.addresses.get(&family).is_none_or(|wanted| claim::is_ip(wanted, address));
                // That of an IPv6 Service has the name that its IPv4 one gets when it becomes dual-stack.
                let is_it = is_it && claim::family_of_frontend(self.observed, item, frontend) == family;
                is_there && is_it && !subnet.is_empty()
            }
        }
    }

    fn new_frontend(
        &self,
        balancer: &str,
        item: &Item,
        settings: &Settings,
        family: Family,
        public_ip: Option<&ArmId>,
        former: Option<&Value>,
    ) -> Result<Value, ProviderError> {
        let name = item.names.frontend(family);
        if let Some(ip) = public_ip {
            return Ok(json!({"name": name, "properties": {"publicIPAddress": {"id": ip.as_str()}}}));
        }
        let static_ip = self.private_address(balancer, item, settings, family)?;
        // One in the place of another has its zones, also if these are none.
        let zones = match former {
            Some(former) => former.get("zones").cloned(),
            None => Some(json!(self.observed.zones)).filter(|_| !self.observed.zones.is_empty()),
        };
        let mut properties = json!({
            "subnet": {"id": self.env.subnet_id(&settings.subnet).as_str()},
            "privateIPAllocationMethod": if static_ip.is_some() { "Static" } else { "Dynamic" },
            "privateIPAddress": static_ip,
        });
        let was_v6 = former.is_some_and(|it| same(json::property(it, "privateIPAddressVersion"), "IPv6"));
        if (family == Family::V6 || was_v6)
            && let Some(fields) = properties.as_object_mut()
        {
            fields.insert("privateIPAddressVersion".to_owned(), json!(family.as_str()));
        }
        let mut frontend = json!({"name": name, "properties": properties});
        if let (Some(zones), Some(fields)) = (zones, frontend.as_object_mut()) {
            fields.insert("zones".to_owned(), zones);
        }
        Ok(frontend)
    }

    /// The static address of a new internal frontend: the requested one, else the published one if the subnet has it.
    fn private_address(
        &self,
        balancer: &str,
        item: &Item,
        settings: &Settings,
        family: Family,
    ) -> Result<Option<String>, ProviderError> {
        let Some(subnet) = self.observed.subnet(&settings.subnet)? else {
            let network = &self.env.network;
            let text = format!(
                "the subnet {} of the virtual network {network} does not exist; create it, or name another one in {} or subnetName",
                settings.subnet,
                keys::LB_SUBNET.row.key
            );
            return Err(refused(text));
        };
        let one = Some(json::property(subnet, "addressPrefix")).filter(|text| !text.is_empty());
        let many = json::items(subnet, "addressPrefixes").iter().filter_map(Value::as_str);
        let nets: Vec<IpNet> = one.into_iter().chain(many).filter_map(|net| net.parse().ok()).collect();
        if let Some(requested) = item.addresses.get(&family) {
            check_requested(requested, family, &settings.subnet, &nets)?;
            return Ok(Some(requested.clone()));
        }
        let published = item.published.iter().filter(|ip| Family::of(**ip) == family);
        let mut kept = published.filter(|ip| nets.iter().any(|net| net.contains(*ip)));
        let is_taken = |ip: &&IpAddr| self.has_another(balancer, item, **ip);
        Ok(kept.find(|ip| !is_taken(ip)).map(ToString::to_string))
    }

    /// Whether a private address is that of a frontend that this Service does not drop with the same write, or before.
    fn has_another(&self, balancer: &str, item: &Item, ip: IpAddr) -> bool {
        let stays = |name: &str| item.families.iter().any(|family| same(&item.names.frontend(*family), name));
        let is_other = |body: &Value, frontend: &Value| {
            let name = json::name(frontend);
            let drops = item.names.own(name) && !(same(json::name(body), balancer) && stays(name));
            !drops && parse_ip(json::property(frontend, "privateIPAddress")) == Some(ip)
        };
        self.bodies()
            .any(|body| json::items(body, "frontendIPConfigurations").iter().any(|frontend| is_other(body, frontend)))
    }

    fn reached_by(
        &self,
        item: &Item,
        family: Family,
        public_ip: Option<&ArmId>,
        frontend: Option<&Value>,
        id: &ArmId,
    ) -> Reached {
        let known = frontend.and_then(|frontend| self.index.address(frontend));
        let of_ip = || {
            let ip = self.index.ip(public_ip?.as_str())?;
            parse_ip(json::property(ip, "ipAddress"))
        };
        let requested = || item.addresses.get(&family).and_then(|text| parse_ip(text));
        match known.or_else(of_ip).or_else(requested) {
            Some(ip) => Reached::Known(ip),
            None => Reached::Of(public_ip.unwrap_or(id).clone()),
        }
    }

    /// Drops the frontends of a Service that it does not want any more.
    fn drop_others(&mut self, balancer: &str, item: &Item, used: &[String], edit: &mut Edit) {
        let is_used = |frontend: &Value| {
            let id = self.frontend_id(balancer, frontend);
            used.iter().any(|used| same(used, id.as_str()))
        };
        let others: Vec<Value> =
            self.left(item, self.body(balancer)).into_iter().filter(|it| !is_used(it)).cloned().collect();
        let (drops, kept) = self.droppable(balancer, item, &others);
        edit.drops = drops;
        self.findings.extend(kept);
    }

    /// The frontends of a load balancer that a Service is to drop where it does not use them: its own, and those that it has
    /// shared with one that is gone.
    pub(super) fn left<'v>(&self, item: &Item, balancer: &'v Value) -> Vec<&'v Value> {
        let tagged = self.index.tagged(&item.key).iter().map(|ip| json::reference(ip, "ipConfiguration"));
        let used = claim::served(item, balancer).into_iter().chain(tagged);
        // An address that is not in use refers to nothing.
        let is_of_another =
            |id: &&str| id.rsplit('/').next().is_some_and(|name| !name.is_empty() && !item.names.own(name));
        let shared: Vec<&str> = used.filter(is_of_another).collect();
        let has_shared = |frontend: &Value| {
            shared.iter().any(|id| same(id, json::text(frontend, &["id"])))
                || item.action == ServiceAction::Delete
                    && claim::frontend(self.observed, item, frontend) == Frontend::Shared
        };
        let is_left = |frontend: &&Value| {
            let name = json::name(frontend);
            item.names.own(name) || has_shared(frontend) && !self.is_of_a_live_service(name)
        };
        json::items(balancer, "frontendIPConfigurations").iter().filter(is_left).collect()
    }

    /// The names of the frontends that nothing else uses, and findings about its own others.
    pub(super) fn droppable(
        &self,
        balancer: &str,
        item: &Item,
        frontends: &[Value],
    ) -> (Vec<String>, Vec<ccm_provider::Finding>) {
        let (mut drops, mut kept) = (Vec::new(), Vec::new());
        for frontend in frontends {
            let name = json::name(frontend).to_owned();
            match self.other_use(balancer, item, &self.frontend_id(balancer, frontend)) {
                None => drops.push(name),
                Some(_) if !item.names.own(&name) => {}
                Some(used) => {
                    let text = format!(
                        "the frontend {name} of the load balancer {balancer} is not deleted, because {used} refers to it"
                    );
                    kept.push(item.finding(KEPT_FRONTEND, text));
                }
            }
        }
        (drops, kept)
    }

    /// What else uses a frontend that a Service is to give up.
    pub(super) fn other_use(&self, balancer: &str, item: &Item, frontend: &ArmId) -> Option<String> {
        let link = || self.other_link(item, frontend).map(|name| format!("the private link service {name}"));
        claim::other_use(self.body(balancer), frontend.as_str(), &item.names.base).or_else(link)
    }

    /// Removes a Service from all load balancers but one.
    pub(super) fn leave(&mut self, place: usize, item: &Item, except: Option<&str>) {
        let names: Vec<String> =
            self.observed.balancers.iter().map(|balancer| json::name(balancer).to_owned()).collect();
        for name in names.into_iter().filter(|name| except.is_none_or(|except| !same(except, name))) {
            let there = Item { scheme: scheme_of(&name), ..item.clone() };
            let body = self.body(&name);
            let left: Vec<Value> = self.left(&there, body).into_iter().cloned().collect();
            let (mut drops, kept) = self.droppable(&name, item, &left);
            // A load balancer whose pools users configure is not deleted: it keeps its last frontend.
            let all = json::items(body, "frontendIPConfigurations").len();
            if self.env.leaves_members(there.scheme) && drops.len() == all {
                drops.clear();
            }
            if item.action == ServiceAction::Ensure {
                self.findings.extend(kept);
            } else if let Some(error) = self.held_by_link(&name, item, &left) {
                self.failed.insert(place, error);
            }
            let waits = self.drop_links(place, item, &self.frontends_of(&name, &drops));
            let moves = except.is_some_and(|except| scheme_of(except) == there.scheme) && !drops.is_empty();
            let mut edit = Edit { drops, waits, moves, ..Edit::of(place, item, self.observed, self.body(&name)) };
            if let Some(except) = except {
                edit.leaves = !moves;
                self.follow(&mut edit, item, except);
            }
            self.add_edit(&name, edit);
        }
    }

    pub(super) fn frontends_of(&self, balancer: &str, names: &[String]) -> Vec<ArmId> {
        let id = self.env.balancer_id(balancer);
        names.iter().map(|name| id.child("frontendIPConfigurations", name)).collect()
    }

    /// Whether a frontend is not to be deleted by one who only shares it.
    pub(super) fn is_of_a_live_service(&self, frontend: &str) -> bool {
        let services = self.observed.cluster.as_ref().map(|facts| facts.services.iter());
        let mut live = services.into_iter().flatten().filter(|service| self.index.is_live(service));
        !claim::is_of_some_service(frontend)
            || live.any(|service| super::super::names::is_of(frontend, &service.base))
            || self.observed.cluster.is_none()
    }
}

/// Whether a requested address is one that a frontend can have in these networks of a subnet.
fn check_requested(text: &str, family: Family, subnet: &str, nets: &[IpNet]) -> Result<(), ProviderError> {
    let mut own = nets.iter().filter(|net| Family::of(net.addr()) == family).peekable();
    let (Some(ip), true) = (parse_ip(text), own.peek().is_some()) else { return Ok(()) };
    let problem = match own.find(|net| net.contains(&ip)) {
        None => "is not in",
        Some(net) if is_reserved(*net, ip) => "is one of the first four or the last, which Azure keeps, of",
        Some(_) => return Ok(()),
    };
    let key = if family == Family::V4 { keys::LB_IPV4.row.key } else { keys::LB_IPV6.row.key };
    let nets: Vec<String> = nets.iter().map(ToString::to_string).collect();
    Err(refused(format!(
        "the requested address {text:?} ({key} or spec.loadBalancerIP) {problem} the subnet {subnet} ({}); write another one, or name \
         its subnet in {}",
        nets.join(", "),
        keys::LB_SUBNET.row.key
    )))
}

fn is_reserved(net: IpNet, ip: IpAddr) -> bool {
    let (IpNet::V4(net), IpAddr::V4(ip)) = (net, ip) else { return false };
    let place = |ip: Ipv4Addr| u32::from(ip) - u32::from(net.network());
    place(ip) < 4 || ip == net.broadcast()
}
