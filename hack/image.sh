#!/usr/bin/env bash
# The content of the image.
#
#   hack/image.sh build FEATURES FOLDER [PROFILE [ARCH]]
#                                     builds the program, with the cargo profile `dist` unless another is named, and puts the content
#                                     of the image into a folder. ARCH is amd64 or arm64, by default that of this machine
#   hack/image.sh check [FOLDER]      checks such a folder; without one, builds it in a temporary folder first
#   hack/image.sh toolchain ARCH      prints what compiles for ARCH: the target of rustc, the version of the C library that goes into
#                                     the program, and the C compiler. Fails with the commands that install what is missing
#
# The Dockerfile calls the first. The second checks, without a container engine, that the program needs only this
# folder: the binary links nothing dynamically and runs with the folder as its root, as a user without a name. The program of
# another architecture runs in QEMU, from Debian's qemu-user-static.
#
# Exit status of check: 0 good, 3 if this machine can't change the root of a process or run the program, 1 anything else.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
user=65532
host=$(rustc -vV | sed -n 's/^host: //p')

die() {
	printf 'image: %s\n' "$*" >&2
	exit 1
}

# Sets what compiles for an architecture: `target` of rustc and the C compiler `cc`.
toolchain() {
	local arch=$1 cpu missing=
	case $arch in
	amd64) cpu=x86_64 ;;
	arm64) cpu=aarch64 ;;
	*) die "$arch is not an architecture of the image: amd64 or arm64" ;;
	esac
	target=$cpu-unknown-linux-gnu
	cc=cc
	[[ $target == "$host" ]] || cc=$cpu-linux-gnu-gcc
	[[ -d $(rustc --print target-libdir --target "$target") ]] || missing+=" && rustup target add $target"
	command -v "$cc" >/dev/null || missing+=" && apt-get install gcc-${cpu/_/-}-linux-gnu libc6-dev-$arch-cross"
	[[ -z $missing ]] || die "to build for linux/$arch, this machine needs: ${missing# && }"
}

build() {
	local features=$1 folder=$2 profile=${3:-dist} arch=${4:-} target=$host cc=cc linker flags
	[[ -z $arch ]] || toolchain "$arch"
	if [[ $target != "$host" ]]; then
		linker=CARGO_TARGET_${target^^}_LINKER
		export "${linker//-/_}=$cc"
	fi
	# The C library goes into the binary, since the image has none. With an explicit target the flag leaves build scripts and
	# procedural macros alone.
	flags='-C target-feature=+crt-static'
	# Relocations are read at each start and stay in memory: packed, they are small. The C library knows them since glibc 2.36. For
	# arm64 rustc makes a static program without any, at a fixed address.
	[[ $target == aarch64-* ]] || flags+=' -C link-arg=-Wl,-z,pack-relative-relocs'
	# Panics name files: by names that do not depend on the machine, so that others can build the same program.
	flags+=" --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
	flags+=" --remap-path-prefix=$(realpath -m "${CARGO_TARGET_DIR:-target}")=/target"
	RUSTFLAGS=$flags CARGO_INCREMENTAL=0 cargo build --profile "$profile" --locked \
		--package ccm --no-default-features --features "kubernetes,$features" --target "$target"
	install -D -m 0755 "${CARGO_TARGET_DIR:-target}/$target/$profile/ccm" "$folder/ccm"
	# The paths of the Go programs and of go-runner: manifests that name one start this program.
	local path
	for path in cloud-controller-manager go-runner usr/local/bin/cloud-controller-manager bin/aws-cloud-controller-manager \
		bin/azure-cloud-controller-manager bin/gcp-cloud-controller-manager bin/openstack-cloud-controller-manager \
		usr/bin/openstack-cloud-controller-manager; do
		mkdir -p "$(dirname "$folder/$path")"
		ln -sf /ccm "$folder/$path"
	done
	# CA certificates for providers, and for kubeconfigs without a CA.
	install -D -m 0644 /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/ca-certificates.crt"
	echo 'hosts: files dns' >"$folder/etc/nsswitch.conf"
	echo "ccm:x:$user:$user::/:/ccm" >"$folder/etc/passwd"
	echo "ccm:x:$user:" >"$folder/etc/group"
}

check() {
	local folder=$1 headers cpu=x86_64 qemu=() said
	headers=$(readelf --program-headers --dynamic --wide "$folder/ccm")
	if grep -E 'INTERP|\(NEEDED\)' <<<"$headers"; then
		echo "image: $folder/ccm needs what the lines above name, and the image does not have it" >&2
		return 1
	fi
	grep -q 'BEGIN CERTIFICATE' "$folder/etc/ssl/certs/ca-certificates.crt"
	! readelf --file-header "$folder/ccm" | grep -q 'Machine: *AArch64' || cpu=aarch64
	if [[ $cpu != "$(uname -m)" ]]; then
		if ! command -v "qemu-$cpu-static" >/dev/null; then
			echo "NOT RUN: the program, which is for another CPU; it takes qemu-$cpu-static (apt-get install qemu-user-static)" >&2
			return 3
		fi
		qemu=(/qemu)
	fi
	# Files that a container engine adds.
	if ((EUID != 0)) || ! mkdir -p "$folder/dev" ||
		! mknod -m 0444 "$folder/dev/random" c 1 8 || ! mknod -m 0444 "$folder/dev/urandom" c 1 9; then
		echo 'NOT RUN: the program in a root of its own; only root may change the root of a process and make devices' >&2
		return 3
	fi
	((${#qemu[@]} == 0)) || install -m 0755 "$(command -v "qemu-$cpu-static")" "$folder/qemu"
	printf '127.0.0.1 localhost\n' >"$folder/etc/hosts"
	# Port 1 is closed, so only the lookup of the host can succeed; the C library in the binary does it.
	cat >"$folder/kubeconfig" <<-'END'
		{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		 "clusters": [{"name": "a", "cluster": {"server": "https://localhost:1"}}],
		 "users": [{"name": "a", "user": {"token": "a"}}],
		 "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}
	END
	said=$(timeout 15 chroot --userspec="$user:$user" "$folder" "${qemu[@]}" /bin/openstack-cloud-controller-manager \
		--cloud-provider=fake --kubeconfig=/kubeconfig --secure-port=0 --leader-elect=false 2>&1 || true)
	rm -rf "$folder/kubeconfig" "$folder/etc/hosts" "$folder/dev" "$folder/qemu"
	if ! grep -qi 'connection refused' <<<"$said"; then
		echo "image: with $folder as its root, the program did not get as far as the API server: $said" >&2
		return 1
	fi
	du -sh "$folder" | sed 's/^/image: good, /'
}

# Sets what `ccm version` says, unless the caller has: a container build has no git.
stamp() {
	[[ -z ${CCM_GIT_COMMIT:-} ]] || return 0
	CCM_GIT_COMMIT=$(git rev-parse HEAD 2>/dev/null) || return 0
	CCM_GIT_TREE_STATE=clean
	git diff --quiet HEAD || CCM_GIT_TREE_STATE=dirty
	CCM_BUILD_DATE=$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
	export CCM_GIT_COMMIT CCM_GIT_TREE_STATE CCM_BUILD_DATE
}

case ${1:-} in
build)
	[[ $# == [345] && -n $2 ]] || die 'usage: hack/image.sh build FEATURES FOLDER [PROFILE [ARCH]]'
	stamp
	build "${@:2}"
	;;
toolchain)
	toolchain "${2:-}"
	echo "$target $(echo __GLIBC__.__GLIBC_MINOR__ | "$cc" -include features.h -E -P - | tr -d ' ') $("$cc" --version | head -n 1)"
	;;
check)
	folder=${2:-}
	if [[ -z $folder ]]; then
		folder=$(mktemp -d)
		trap 'rm -rf "$folder"' EXIT
		chmod 0755 "$folder"
		build fake "$folder" release
	fi
	check "$folder"
	;;
*)
	sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
	[[ ${1:-} == -h || ${1:-} == --help ]]
	;;
esac
