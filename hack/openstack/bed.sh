#!/usr/bin/env bash
# Real OpenStack services for tests, on 127.0.0.1: Keystone, Neutron, Octavia, Nova, Placement and Glance, over MariaDB and
# RabbitMQ. There are no virtual machines, agents or load balancers behind them: Nova boots with its fake driver, Neutron's
# ports are ACTIVE at once, and Octavia configures no-op amphorae. The APIs, databases, quotas, states and conflicts are real.
#
#   hack/openstack/bed.sh install          obtain it, once: 4 minutes and 1 GB
#   hack/openstack/bed.sh start            start what does not run; half a minute, the first time two
#   hack/openstack/bed.sh stop             stop what start has started
#   hack/openstack/bed.sh status           what runs; exit status 0 if all of it does
#   hack/openstack/bed.sh erase            stop, and delete all data, but not what install obtained
#   hack/openstack/bed.sh pause SERVICE    suspend a service, such as octavia-worker
#   hack/openstack/bed.sh resume SERVICE   undo that
#   hack/openstack/bed.sh sql STATEMENT    run a statement as the administrator of the databases
#
# Everything is in ${XDG_CACHE_HOME:-~/.cache}/ccm/openstack: data/, log/, run/ and, for the client `openstack` as the
# administrator, etc/openrc. The ports are fixed, so a machine has one bed. An interrupted command can be repeated.
#
# It needs Linux, python3 (3.11 or newer, with venv and pip), openssl, and MariaDB and RabbitMQ, which it installs from Debian
# as root. It needs 3 GB of memory.
#
# Exit status: 0 done; 3 not available on this machine; 1 anything else. With CI=true, 1 instead of 3.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bed=${XDG_CACHE_HOME:-$HOME/.cache}/ccm/openstack
bin=$bed/venv/bin
rabbitmq=/usr/lib/rabbitmq/bin/rabbitmq-server
# Name and port, in the order of starting; the last ones listen on nothing.
stores=(mariadb:13306 rabbitmq:15673)
services=(keystone:15000 neutron:19696 octavia:19876 placement:18778 glance:19292 nova:18774
	octavia-worker: nova-conductor: nova-scheduler: nova-compute:)
# Erlang's port mapper gets a port of its own, because the usual one can serve others.
erlang=(env HOME="$bed/run" ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT=24369)
databases=(keystone neutron octavia nova nova_api nova_cell0 placement glance)

say() { printf 'openstack: %s\n' "$*" >&2; }

die() {
	say "$*"
	exit 1
}

unavailable() {
	say "NOT AVAILABLE: $1"
	if [[ ${CI:-} == true ]]; then exit 1; fi
	exit 3
}

# Runs a command with its output in a log; if it fails, prints the end of the log.
logged() {
	local log=$bed/log/$1.log
	shift
	if ! "$@" >"$log" 2>&1 9>&-; then
		tail -n 20 "$log" >&2
		say "failed: $* (the end of $log is above)"
		return 1
	fi
}

installed() {
	cmp -s "$here/requirements.txt" "$bed/venv/requirements.txt" && diff -rq "$here/drivers" "$bed/venv/drivers" >/dev/null &&
		command -v mariadbd >/dev/null && [[ -x $rabbitmq ]]
}

install_packages() {
	local missing=()
	command -v mariadbd >/dev/null || missing+=(mariadb-server)
	[[ -x $rabbitmq ]] || missing+=(rabbitmq-server)
	command -v openssl >/dev/null || missing+=(openssl)
	((${#missing[@]} > 0)) || return 0
	((EUID == 0)) && command -v apt-get >/dev/null ||
		unavailable "${missing[*]} missing, and only root can install them, on Debian and its kin: apt-get install ${missing[*]}"
	say "installing ${missing[*]} with apt-get"
	logged apt-update apt-get update -q || unavailable 'no list of packages'
	logged apt env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}" ||
		unavailable "${missing[*]} could not be installed"
}

install() {
	[[ $(uname) == Linux ]] || unavailable 'this is not Linux'
	install_packages
	if ! cmp -s "$here/requirements.txt" "$bed/venv/requirements.txt"; then
		command -v python3 >/dev/null || unavailable 'no python3'
		python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || unavailable "python3 is $(python3 --version 2>&1)"
		running keystone && die 'the versions have changed: stop the bed before the installation'
		say "installing OpenStack's services with pip, once; usually three minutes (log: $bed/log/pip.log)"
		# pip continues an interrupted installation if the environment has the same versions.
		logged venv python3 -m venv "$bed/venv" || unavailable 'no Python environment; on Debian: apt-get install python3-venv'
		logged pip "$bin/python" -m pip install --disable-pip-version-check --no-deps -r "$here/requirements.txt" ||
			unavailable 'a package could not be installed'
		# The last file copied into the environment: with it and the same versions, the environment is complete.
		cp "$here/requirements.txt" "$bed/venv/requirements.txt"
	fi
	if ! diff -rq "$here/drivers" "$bed/venv/drivers" >/dev/null 2>&1; then
		rm -rf "$bed/venv/drivers" "$bed/run/drivers"
		# In a copy: the build leaves files behind.
		cp -r "$here/drivers" "$bed/run/drivers"
		logged drivers "$bin/python" -m pip install --disable-pip-version-check --no-build-isolation --no-deps \
			--force-reinstall "$bed/run/drivers"
		cp -r "$here/drivers" "$bed/venv/drivers"
	fi
	say "installed in $bed"
}

# The start time of a process: together with the ID it identifies one process, even if the ID is reused.
started_at() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
	# The fields after the name, which may have spaces: state first.
	set -- ${stat##*) }
	[[ $1 == Z ]] || printf '%s' "${20}"
}

# Sets `pid`.
running() {
	local started
	{ read -r pid started <"$bed/run/$1.pid"; } 2>/dev/null && [[ -n $started && $(started_at "$pid") == "$started" ]]
}

opens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Each service is the leader of a session and group of its own, so that signals reach its children and a signal for this
# script does not reach it.
launch() {
	local name=$1 pid
	shift
	setsid nohup "$@" </dev/null >>"$bed/log/$name.log" 2>&1 9>&- &
	pid=$!
	printf '%s %s\n' "$pid" "$(started_at "$pid")" >"$bed/run/$name.pid"
}

wsgi() {
	local name=$1 module=$2 arguments=
	shift 2
	if [[ $name == octavia ]]; then arguments="--config-file $bed/etc/octavia/octavia.conf"; fi
	launch "$name" env "$@" "$bin/uwsgi" --http-socket "127.0.0.1:$port" --module "$module" --pyargv "$arguments" --processes 1 \
		--threads 4 --enable-threads --lazy-apps --need-app --die-on-term --thunder-lock --http-auto-chunked \
		--add-header 'Connection: close' --buffer-size 65535
}

launch_one() {
	local name=$1 port=$2 etc=$bed/etc account=()
	case $name in
	mariadb)
		((EUID != 0)) || account=(--user=root)
		launch "$name" mariadbd --no-defaults "${account[@]}" --datadir="$bed/data/mariadb" --socket="$bed/run/mariadb.sock" \
			--bind-address=127.0.0.1 --port="$port" --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0 \
			--skip-log-bin --max-connections=500
		;;
	rabbitmq)
		launch "$name" "${erlang[@]}" \
			RABBITMQ_CONFIG_FILE="$etc/rabbitmq" RABBITMQ_MNESIA_BASE="$bed/data/rabbitmq" RABBITMQ_LOG_BASE="$bed/log" \
			RABBITMQ_NODENAME=bed@localhost RABBITMQ_DIST_PORT=25673 RABBITMQ_PID_FILE="$bed/run/rabbitmq-erlang.pid" \
			RABBITMQ_ENABLED_PLUGINS_FILE="$etc/no-plugins" \
			RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1} +S 1:1' "$rabbitmq"
		;;
	keystone) wsgi "$name" keystone.wsgi.api OS_KEYSTONE_CONFIG_DIR="$etc/keystone" ;;
	neutron)
		wsgi "$name" neutron.wsgi.api OS_NEUTRON_CONFIG_DIR="$etc/neutron" OS_NEUTRON_CONFIG_FILES='neutron.conf;ml2_conf.ini'
		;;
	octavia) wsgi "$name" octavia.wsgi.api ;;
	placement) wsgi "$name" placement.wsgi.api OS_PLACEMENT_CONFIG_DIR="$etc/placement" ;;
	glance) wsgi "$name" glance.wsgi.api OS_GLANCE_CONFIG_DIR="$etc/glance" ;;
	nova) wsgi "$name" nova.wsgi.osapi_compute OS_NOVA_CONFIG_DIR="$etc/nova" ;;
	octavia-worker)
		launch "$name" env CCM_BED_FAIL="$bed/run/fail" "$bin/octavia-worker" --config-file "$etc/octavia/octavia-worker.conf"
		;;
	nova-compute) launch "$name" "$bin/nova-compute" --config-file "$etc/nova/nova-compute.conf" ;;
	nova-*) launch "$name" "$bin/$name" --config-file "$etc/nova/nova.conf" ;;
	esac
}

# Starts those of the services, NAME:PORT each, that do not run, and waits until all ports are open.
start_all() {
	local entry name port pid tries
	for entry in "$@"; do
		name=${entry%:*} port=${entry#*:}
		if running "$name"; then continue; fi
		if [[ -n $port ]] && opens "$port"; then die "port $port, which is for $name, is in use"; fi
		launch_one "$name" "$port"
	done
	for entry in "$@"; do
		name=${entry%:*} port=${entry#*:}
		for ((tries = 0; tries < 600; tries++)); do
			if ! running "$name"; then
				tail -n 20 "$bed/log/$name.log" >&2
				die "$name has ended (the end of $bed/log/$name.log is above)"
			fi
			if [[ -z $port ]] || opens "$port"; then break; fi
			sleep 0.1
		done
		((tries < 600)) || die "$name does not listen on port $port"
	done
}

sql() { mariadb --no-defaults --user=root --socket="$bed/run/mariadb.sock" --batch --skip-column-names --execute "$1"; }

nova_databases() {
	local manage=("$bin/nova-manage" --config-file "$bed/etc/nova/nova.conf")
	"${manage[@]}" api_db sync &&
		"${manage[@]}" cell_v2 map_cell0 --database_connection mysql+pymysql://bed:bed@127.0.0.1:13306/nova_cell0 &&
		"${manage[@]}" db sync &&
		{ "${manage[@]}" cell_v2 list_cells | grep -q cell1 || "${manage[@]}" cell_v2 create_cell --name cell1; }
}

keystone_database() {
	local manage=("$bin/keystone-manage" --config-file "$bed/etc/keystone/keystone.conf") url=http://127.0.0.1:15000/v3
	local owner=(--keystone-user "$(id -un)" --keystone-group "$(id -gn)")
	"${manage[@]}" db_sync && "${manage[@]}" fernet_setup "${owner[@]}" && "${manage[@]}" credential_setup "${owner[@]}" &&
		"${manage[@]}" bootstrap --bootstrap-password bed --bootstrap-admin-url "$url" --bootstrap-public-url "$url" \
			--bootstrap-internal-url "$url" --bootstrap-region-id RegionOne
}

# Makes the schemas of all databases, side by side.
make_databases() {
	local name account jobs=() job status=0 etc=$bed/etc
	say 'making the databases, once; usually a minute'
	for name in "${databases[@]}"; do sql "CREATE DATABASE IF NOT EXISTS $name CHARACTER SET utf8mb3"; done
	for account in "bed@'127.0.0.1'" bed@localhost; do
		sql "CREATE USER IF NOT EXISTS $account IDENTIFIED BY 'bed'; GRANT ALL ON *.* TO $account"
	done
	logged db-keystone keystone_database & jobs+=("$!")
	logged db-neutron "$bin/neutron-db-manage" --config-file "$etc/neutron/neutron.conf" \
		--config-file "$etc/neutron/ml2_conf.ini" upgrade heads & jobs+=("$!")
	logged db-octavia "$bin/octavia-db-manage" --config-file "$etc/octavia/octavia.conf" upgrade head & jobs+=("$!")
	logged db-glance "$bin/glance-manage" --config-file "$etc/glance/glance-api.conf" db_sync & jobs+=("$!")
	logged db-placement "$bin/placement-manage" --config-dir "$etc/placement" db sync & jobs+=("$!")
	logged db-nova nova_databases & jobs+=("$!")
	for job in "${jobs[@]}"; do wait "$job" || status=1; done
	((status == 0)) || die 'not all databases could be made'
	touch "$bed/data/databases"
}

all_run() {
	local entry pid
	for entry in "${stores[@]}" "${services[@]}"; do running "${entry%:*}" || return 1; done
}

start() {
	local began=$SECONDS certificates=$bed/data/certificates pid entry account=()
	installed || unavailable "no OpenStack services in $bed; hack/openstack/bed.sh install obtains them"
	resume_worker
	if all_run && [[ -f $bed/run/ready ]]; then return; fi
	rm -f "$bed/run/ready"
	mkdir -p "$bed/data/images" "$bed/data/nova" "$certificates" "$bed/run/fail"
	"$bin/python" "$here/configure.py" "$bed"
	if [[ ! -f $certificates/ca.pem ]]; then
		logged openssl openssl req -x509 -newkey rsa:2048 -nodes -keyout "$certificates/ca.key" -out "$certificates/new.pem" \
			-days 3650 -subj /CN=bed
		mv "$certificates/new.pem" "$certificates/ca.pem"
	fi
	if [[ ! -d $bed/data/mariadb ]]; then
		rm -rf "$bed/data/mariadb.new"
		((EUID != 0)) || account=(--user=root)
		logged mariadb-install mariadb-install-db --no-defaults "${account[@]}" --datadir="$bed/data/mariadb.new" \
			--auth-root-authentication-method=normal
		mv "$bed/data/mariadb.new" "$bed/data/mariadb"
	fi
	say 'starting'
	start_all "${stores[@]}"
	[[ -f $bed/data/databases ]] || make_databases
	# The daemons of Nova log in while they start, so the users come first.
	start_all "${services[0]}"
	logged users "$bin/python" "$here/catalog.py" users
	start_all "${services[@]}"
	logged catalog "$bin/python" "$here/catalog.py" all
	touch "$bed/run/ready"
	say "ready at http://127.0.0.1:15000/v3 after $((SECONDS - began)) s (administrator: $bed/etc/openrc)"
}

# Stops services with SIGTERM, and after some seconds with SIGKILL.
stop_all() {
	local limit=$1 entry pid tries groups=() left=()
	shift
	for entry in "$@"; do
		if running "${entry%:*}"; then
			groups+=("$pid")
			kill -TERM -- "-$pid" 2>/dev/null || true
			kill -CONT -- "-$pid" 2>/dev/null || true
		fi
	done
	for ((tries = 0; tries < limit * 10; tries++)); do
		left=()
		for pid in "${groups[@]}"; do if kill -0 -- "-$pid" 2>/dev/null; then left+=("$pid"); fi; done
		((${#left[@]} > 0)) || break
		sleep 0.1
	done
	for pid in "${left[@]}"; do kill -KILL -- "-$pid" 2>/dev/null || true; done
	for entry in "$@"; do rm -f "$bed/run/${entry%:*}.pid"; done
}

stop() {
	rm -f "$bed/run/ready"
	# Neutron takes long to stop, and has no state to lose.
	stop_all 5 "${services[@]}"
	stop_all 30 "${stores[@]}"
	if command -v epmd >/dev/null; then "${erlang[@]}" epmd -kill >/dev/null 2>&1 || true; fi
	say 'stopped'
}

status() {
	local entry name pid state result=0
	installed || { say "not installed in $bed" && return 1; }
	for entry in "${stores[@]}" "${services[@]}"; do
		name=${entry%:*} state='does not run'
		if running "$name"; then state="runs, pid $pid"; else result=1; fi
		printf '%-16s %-6s %s\n' "$name" "${entry#*:}" "$state"
	done
	return "$result"
}

# A test that pauses the worker holds this lock; the test may have died.
resume_worker() {
	local pid
	if running octavia-worker; then
		flock -n "$bed/run/worker.lock" kill -CONT -- "-$pid" || true
	fi
}

send() {
	local pid
	running "$2" || die "$2 does not run"
	kill "-$1" -- "-$pid"
}

case ${1:-} in
install | start | stop | erase)
	command -v flock >/dev/null && command -v setsid >/dev/null || unavailable 'no flock or setsid (util-linux)'
	mkdir -p "$bed/log" "$bed/run"
	exec 9>"$bed/lock"
	flock -n 9 || { say 'another run works on the bed; waiting for it' && flock 9; }
	case $1 in
	erase)
		stop
		# Octavia's no-op drivers keep their state in this file, and no option changes its path.
		rm -rf "$bed/data" /tmp/octavia-network-noop.db
		;;
	*) "$1" ;;
	esac
	;;
status) status ;;
pause) send STOP "${2:-}" ;;
resume) send CONT "${2:-}" ;;
sql) sql "${2:-}" ;;
-h | --help) sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}" ;;
*) die "unknown command ${1:-}; see --help" ;;
esac
