#!/usr/bin/env bash
# Makes the files of a release in a folder. It publishes nothing.
#
#   hack/release.sh --dry-run VERSION [--features LIST] [--arch LIST] [--profile PROFILE] [--out FOLDER] [--key FILE]
#                                     [--addresses FILE] [--without-pictures]
#
# VERSION     must be that of Cargo.toml, README.md, the chart and a section of CHANGELOG.md; the tree must have no changes
# --features  the providers, separated by commas (default fake,aws,azure,gce,openstack; `aws` needs 7 GB of memory). There is a
#             program with all of them, and one for each
# --arch      the architectures (default amd64,arm64). One that is not this machine's needs a target of rustc and a C compiler; the
#             script names the commands that install them
# --profile   of cargo (default dist)
# --out       an empty or new folder (default release-VERSION in the current folder)
# --key       a private key in PEM with which the checksums are signed
# --addresses
#             the addresses of the project (default hack/addresses); all of them must be set
# --without-pictures
#             leaves out the pictures, which need Debian's packages prometheus and chromium, and a real API server
#
# Everything is built twice, in the same place from nothing; the two must be equal, byte for byte. The dates in the files are that
# of the commit. With all providers it takes some hours on two cores. The result, where PROGRAM is ccm-VERSION for the one with all
# providers and ccm-VERSION-PROVIDER for the others:
#
#   PROGRAM-linux-ARCH              the program, linked statically
#   PROGRAM.oci.tar                 the image as an OCI layout, for all architectures
#   PROGRAM.spdx.json               the packages in the program, on any architecture (SPDX)
#   ccm-VERSION-PROVIDER.yaml       the overlay, whose image is that of the provider: the smallest program, which has the least
#                                   to patch
#   ccm-VERSION.tgz                 the chart, whose image is that with all providers, because the provider is one of its values
#   kubectl-ccm-VERSION-linux-ARCH.tar.gz, plugin.yaml
#                                   the program with all providers as a plugin of kubectl, and its manifest for krew
#   provenance.json                 commit, toolchains and arguments of the build, for each of these files (in-toto, SLSA)
#   CHANGES.md                      the section of the changelog
#   dashboard.svg, debug.png        the dashboard and the page /debug/ during an incident (cargo xtask dashboard)
#   SHA256SUMS, SHA256SUMS.sig      checksums, and their signature with --key
#
# The images are those of one repository, IMAGES of the addresses: vVERSION and vVERSION-PROVIDER. They have no base image. Chart
# and manifests name the digest of the index of all architectures; copy the image with that index (skopeo copy --all, for example),
# or it changes.
#
# It needs git, jq, openssl, kubectl and GNU tar. Exit status: 0 made; 1 anything else. Not made here: kubectl-ccm for darwin, whose
# linker needs the SDK of macOS, and publishing.
set -euo pipefail
shopt -s inherit_errexit

die() {
	printf 'release: %s\n' "$*" >&2
	exit 1
}

version= features=fake,aws,azure,gce,openstack arch=amd64,arm64 profile=dist out= key= dry= addresses= pictures=1
while (($# > 0)); do
	case $1 in
	--dry-run) dry=1 ;;
	--without-pictures) pictures= ;;
	--features | --arch | --profile | --out | --key | --addresses)
		[[ -n ${2:-} ]] || die "$1 needs a value"
		printf -v "${1#--}" %s "$2"
		shift
		;;
	-h | --help)
		sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
		exit 0
		;;
	-*) die "unknown argument $1 (see --help)" ;;
	*) version=$1 ;;
	esac
	shift
done
[[ -n $dry ]] || die 'only --dry-run is there: this script publishes nothing'
[[ -n $version ]] || die 'name the version, such as 0.1.0'
out=$(realpath -m "${out:-release-$version}")
addresses=$(realpath -e "${addresses:-$(dirname "${BASH_SOURCE[0]}")/addresses}") || die "--addresses: there is no such file"
[[ -z $key ]] || key=$(realpath -e "$key") || die "--key: there is no such file"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in git jq openssl kubectl tar; do command -v "$tool" >/dev/null || die "$tool is missing"; done
changes=$(git status --porcelain)
[[ -z $changes ]] || die "the tree has changes that are not committed:"$'\n'"$changes"

# The version that a file has, by a pattern with one group.
same() {
	local found
	found=$(sed -n "s/$2/\1/p" "$1" | head -n 1)
	[[ $found == "$version" ]] || die "$1 has the version '$found', not $version; change one of them"
}
same Cargo.toml '^version = "\(.*\)"$'
same README.md '^.*Version \([0-9.]*[0-9]\),.*'
same manifests/charts/ccm/Chart.yaml '^version: \(.*\)$'
same manifests/charts/ccm/Chart.yaml '^appVersion: v\(.*\)$'
section=$(awk -v head="## $version" '/^## / { on = ($0 == head || index($0, head " ") == 1); next } on' CHANGELOG.md)
[[ -n ${section//[[:space:]]/} ]] || die "CHANGELOG.md has no section '## $version', or it is empty"
unreleased=$(awk '/^## / { on = /^## Unreleased/; next } on' CHANGELOG.md)
[[ -z ${unreleased//[[:space:]]/} ]] || die "CHANGELOG.md has lines under '## Unreleased': move them to '## $version'"
missing=()
for address in REPOSITORY SECURITY_CONTACT IMAGES; do
	printf -v "$address" %s "$(sed -n "s/^$address=//p" "$addresses" | tail -n 1)"
	[[ -n ${!address} ]] || missing+=("$address")
done
((${#missing[@]} == 0)) || die "$addresses does not set ${missing[*]}; a release without them would name nobody. Set them there"
[[ -z $(ls -A "$out" 2>/dev/null) ]] || die "$out is not empty"
IFS=, read -ra providers <<<"$features"
IFS=, read -ra archs <<<"$arch"
declare -A toolchains images
for arch in "${archs[@]}"; do toolchains[$arch]=$(hack/image.sh toolchain "$arch"); done
mkdir -p "$out"
if [[ -n $pictures ]]; then
	hack/prometheus.sh >/dev/null && command -v chromium >/dev/null ||
		die 'the pictures need prometheus and chromium (apt-get install prometheus chromium), or --without-pictures'
	cargo xtask dashboard --out "$out"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Of its own: nothing that was built before is in the program.
export CARGO_TARGET_DIR=$work/target
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
# What `ccm version` says.
CCM_GIT_COMMIT=$(git rev-parse HEAD)
export CCM_GIT_COMMIT CCM_GIT_TREE_STATE=clean CCM_BUILD_DATE=$created
name=ccm-$version
programs=("$name" "${providers[@]/#/$name-}")
features_of() { if [[ $1 == "$name" ]]; then echo "$features"; else echo "${1#"$name-"}"; fi; }

# The same bytes for the same content, whoever packs it and when.
pack() {
	tar --create --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w "$@"
}
digest() { sha256sum "$1" | cut -d ' ' -f 1; }

# With all providers first: most of what it compiles serves the others too, and the SDK of AWS is compiled once.
for run in 1 2; do
	rm -rf "$CARGO_TARGET_DIR"
	mkdir "$work/$run"
	for arch in "${archs[@]}"; do
		for program in "${programs[@]}"; do
			rm -rf "$work/root"
			hack/image.sh build "$(features_of "$program")" "$work/root" "$profile" "$arch"
			pack --file "$work/$run/$program-linux-$arch" --directory "$work/root" .
			install -m 0755 "$work/root/ccm" "$out/$program-linux-$arch"
		done
	done
done
diff -rq "$work/1" "$work/2" >&2 || die 'two builds of the same commit differ: they are not reproducible'
echo 'release: not made: kubectl-ccm for darwin, because there is no toolchain for it' >&2

# Adds a file to the layout, and prints its descriptor.
blob() {
	local sum size
	sum=$(digest "$1")
	size=$(stat --format=%s "$1")
	cp "$1" "$layout/blobs/sha256/$sum"
	jq -nc --arg type "$2" --arg digest "sha256:$sum" --argjson size "$size" '{mediaType: $type, digest: $digest, size: $size}'
}
oci=application/vnd.oci.image
# Makes the layout of an image, and prints the digest of its index.
layout() {
	local layout=$work/layout tag=v${1#ccm-} arch layer config manifest index
	rm -rf "$layout"
	mkdir -p "$layout/blobs/sha256"
	for arch in "${archs[@]}"; do
		gzip -9n <"$work/1/$1-linux-$arch" >"$work/layer.tar.gz"
		layer=$(blob "$work/layer.tar.gz" $oci.layer.v1.tar+gzip)
		jq -nc --arg arch "$arch" --arg created "$created" --arg layer "sha256:$(digest "$work/1/$1-linux-$arch")" '{
			architecture: $arch, os: "linux", created: $created, config: {User: "65532:65532",
				Env: ["PATH=/usr/local/bin:/bin"], Entrypoint: ["/ccm"], ExposedPorts: {"10258/tcp": {}}},
			rootfs: {type: "layers", diff_ids: [$layer]}}' >"$work/config.json"
		config=$(blob "$work/config.json" $oci.config.v1+json)
		jq -nc --arg type $oci.manifest.v1+json --argjson config "$config" --argjson layer "$layer" --arg version "$version" \
			--arg revision "$CCM_GIT_COMMIT" '{schemaVersion: 2, mediaType: $type, config: $config, layers: [$layer], annotations: {
			"org.opencontainers.image.version": $version, "org.opencontainers.image.revision": $revision}}' >"$work/manifest.json"
		manifest=$(blob "$work/manifest.json" $oci.manifest.v1+json)
		jq -c --arg arch "$arch" '. + {platform: {os: "linux", architecture: $arch}}' <<<"$manifest"
	done | jq -sc --arg type $oci.index.v1+json '{schemaVersion: 2, mediaType: $type, manifests: .}' >"$work/index.json"
	index=$(blob "$work/index.json" $oci.index.v1+json)
	jq -c --arg type $oci.index.v1+json --arg tag "$tag" '{schemaVersion: 2, mediaType: $type, manifests: [. + {
		annotations: {"org.opencontainers.image.ref.name": $tag}}]}' <<<"$index" >"$layout/index.json"
	printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
	pack --file "$out/$1.oci.tar" --directory "$layout" .
	jq -r .digest <<<"$index"
}
for program in "${programs[@]}"; do images[$program]=$(layout "$program"); done

# Of the release in place of the placeholders: the address of the repository, and an image.
fill() { sed -i "s|https://ccm.invalid|$REPOSITORY/blob/v$version|; s|^\( *image: \)[^:]*:.*|\1$IMAGES@$1|" "${@:2}"; }
image=${images[$name]}
cp -r manifests/charts/ccm "$work/ccm"
fill "$image" "$work/ccm/files/alerts.yaml"
sed -i "/^image:/,/^[a-z]*:\$/ { s|^  repository: \"\"|  repository: $IMAGES|; s|^  digest: \"\"|  digest: $image|; }" "$work/ccm/values.yaml"
grep -q "^  digest: $image\$" "$work/ccm/values.yaml" || die 'the values of the chart have no image'
printf 'home: %s\nsources: [%s]\n' "$REPOSITORY" "$REPOSITORY" >>"$work/ccm/Chart.yaml"
pack --file "$work/chart.tar" --directory "$work" ccm
gzip -9n <"$work/chart.tar" >"$out/$name.tgz"
for provider in "${providers[@]}"; do
	kubectl kustomize "manifests/overlays/$provider" >"$out/$name-$provider.yaml"
	fill "${images[$name-$provider]}" "$out/$name-$provider.yaml"
	grep -q " $IMAGES@${images[$name-$provider]}\$" "$out/$name-$provider.yaml" || die "manifests/overlays/$provider has no image"
done

cat >"$out/plugin.yaml" <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: ccm
spec:
  version: v$version
  homepage: $REPOSITORY
  shortDescription: Checks and explains the cloud-controller-manager
  description: |
    Explains why a node is tainted or a Service has no load balancer, shows what the cloud-controller-manager would write, and checks
    its installation. It finds the flags of the one that runs, and changes nothing.
  platforms:
END
mkdir "$work/plugin"
cp LICENSE "$work/plugin"
for arch in "${archs[@]}"; do
	plugin=kubectl-$name-linux-$arch.tar.gz
	install -m 0755 "$out/$name-linux-$arch" "$work/plugin/kubectl-ccm"
	pack --file "$work/plugin.tar" --directory "$work/plugin" kubectl-ccm LICENSE
	gzip -9n <"$work/plugin.tar" >"$out/$plugin"
	cat >>"$out/plugin.yaml" <<-END
		  - selector: {matchLabels: {os: linux, arch: $arch}}
		    uri: $REPOSITORY/releases/download/v$version/$plugin
		    sha256: $(digest "$out/$plugin")
		    bin: kubectl-ccm
	END
done

awk -F '"' '/^name = / { name = $2 } /^version = / { version = $2 } /^checksum = / { print name " v" version "|" $2 }' Cargo.lock >"$work/sums"
# The C library and the packages in a program, with the checksums of the lock file: those of the workspace have none.
sbom() {
	local arch target libc
	for arch in "${archs[@]}"; do
		read -r target libc _ <<<"${toolchains[$arch]}"
		echo "glibc v$libc|LGPL-2.1-or-later"
		cargo tree --locked --package ccm --edges normal --no-default-features --features "kubernetes,$(features_of "$1")" \
			--target "$target" --prefix none --format '{p}|{l}'
	done | sed 's/^\([^ |]* [^ |]*\)[^|]*|/\1|/; s/ (\*)$//' | sort -u >"$work/packages"
	jq -n --rawfile packages "$work/packages" --rawfile sums "$work/sums" --arg name "$1" --arg created "$created" \
		--arg content "$(digest "$work/packages")" '
		def rows: split("\n") | map(select(. != "") | split("|"));
		($sums | rows | map({key: .[0], value: .[1]}) | from_entries) as $sums
		| [$packages | rows[] | (.[0] | split(" v")) as [$package, $version] | {
			name: $package, versionInfo: $version, SPDXID: ("SPDXRef-" + $package + "-" + $version | gsub("[^A-Za-z0-9.-]"; "-")),
			downloadLocation: "NOASSERTION", licenseConcluded: "NOASSERTION", copyrightText: "NOASSERTION", filesAnalyzed: false,
			licenseDeclared: (.[1] // "" | gsub(" */ *"; " OR ") | if . == "" then "NOASSERTION" else . end),
			externalRefs: [{referenceCategory: "PACKAGE-MANAGER", referenceType: "purl",
				referenceLocator: "pkg:\(if $package == "glibc" then "generic" else "cargo" end)/\($package)@\($version)"}],
			checksums: (if $sums[.[0]] then [{algorithm: "SHA256", checksumValue: $sums[.[0]]}] else [] end)}] as $all
		| ($all[] | select(.name == "ccm").SPDXID) as $root
		| {spdxVersion: "SPDX-2.3", dataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", name: $name,
			documentNamespace: "https://spdx.org/spdxdocs/\($name)-\($content)",
			creationInfo: {created: $created, creators: ["Tool: hack/release.sh"]}, packages: $all,
			relationships: ([{spdxElementId: "SPDXRef-DOCUMENT", relationshipType: "DESCRIBES", relatedSpdxElement: $root}]
				+ [$all[] | select(.SPDXID != $root) | {spdxElementId: $root, relationshipType: "DEPENDS_ON", relatedSpdxElement: .SPDXID}])}
		' >"$out/$1.spdx.json"
}
for program in "${programs[@]}"; do sbom "$program"; done

printf '%s\n' "$section" >"$out/CHANGES.md"
{
	(cd "$out" && sha256sum -- *)
	for program in "${programs[@]}"; do echo "${images[$program]#sha256:}  $IMAGES:v${program#ccm-}"; done
} >"$work/subjects"
jq -n --rawfile subjects "$work/subjects" --arg script "$REPOSITORY/blob/v$version/hack/release.sh" \
	--arg source "git+$REPOSITORY" --arg commit "$CCM_GIT_COMMIT" --arg rustc "$(rustc -V)" --arg lock "$(digest Cargo.lock)" \
	--arg features "$features" --arg profile "$profile" --arg toolchains "$(printf '%s\n' "${toolchains[@]}" | sort)" '
	{_type: "https://in-toto.io/Statement/v1",
	subject: [$subjects | split("\n")[] | select(. != "") | split("  ") | {name: .[1], digest: {sha256: .[0]}}],
	predicateType: "https://slsa.dev/provenance/v1", predicate: {
		buildDefinition: {buildType: $script, externalParameters: {features: $features, profile: $profile,
			targets: [$toolchains | split("\n")[] | split(" ")[0]]},
			resolvedDependencies: [{name: "commit", uri: $source, digest: {gitCommit: $commit}}, {name: "Cargo.lock", digest: {sha256: $lock}}]},
		runDetails: {builder: {id: $script, version: {rustc: $rustc, toolchains: $toolchains}}}}}' >"$out/provenance.json"

(cd "$out" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
if [[ -n $key ]]; then openssl pkeyutl -sign -rawin -inkey "$key" -in "$out/SHA256SUMS" -out "$out/SHA256SUMS.sig"; fi
printf 'release: made in %s\n' "$out"
ls -l "$out"
