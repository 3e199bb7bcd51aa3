//! Runs all cases on real services too, if `CCM_TEST_OPENSTACK` is the URL of their Keystone (`http://…/v3`) and
//! `OS_USERNAME` and `OS_PASSWORD` identify an administrator. The answers may differ from the simulation only as listed
//! in the table.

use super::client::{Client, password};
use super::run::compare;
use super::{cases, scene};
use crate::deviations::{self, openstack::OF_OPENSTACK};
use std::time::Duration;

#[test]
fn real_services_differ_only_where_the_table_says_so() {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(keystone) = variable("CCM_TEST_OPENSTACK") else { return };
    let (user, secret) = (variable("OS_USERNAME").expect("OS_USERNAME"), variable("OS_PASSWORD").expect("OS_PASSWORD"));
    let admin = Client::login(&keystone, &password(&user, &secret, "admin"));
    let cloud = scene::cloud();
    let (client, mut values) = scene::simulated(&cloud);
    let (real, mut real_values) = scene::real(&admin);
    let mut report = Vec::new();
    for case in cases::all() {
        let (answers, _) = case.run(&client, &mut values, &|| scene::later(&cloud), |_| Vec::new());
        let (real_answers, _) =
            case.run(&real, &mut real_values, &|| std::thread::sleep(Duration::from_millis(100)), |_| Vec::new());
        report.extend(compare(&case, (&real_answers, &real_values), (&answers, &values)));
    }
    scene::remove(&admin, &real, &real_values);
    deviations::check(OF_OPENSTACK, &report);
}
