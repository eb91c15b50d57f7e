# The images that the cluster is built from: pulled, or made from Debian's packages and this machine's toolchain where no registry of
# images can be reached. To be sourced.

# A mirror that is frozen at some day is as good as one of today.
apt="apt-get -o Acquire::Check-Valid-Until=false -o Acquire::Check-Date=false -o APT::Install-Recommends=false -qq"

have_images() {
    have debian:bookworm-slim make_debian
    have rust:1.95-bookworm make_rust
    have postgres:17-bookworm make_postgres
}

have() {
    docker image inspect "$1" >/dev/null 2>&1 && return
    # Once there was none to be had, no further one is tried.
    [ -z "$no_registry" ] && timeout 300 docker pull --quiet "$1" 2>/dev/null && return
    no_registry=yes
    echo "making $1"
    "$2" "$1"
}
no_registry=

make_debian() {
    debootstrap --variant=minbase bookworm "$work/debian" http://deb.debian.org/debian >"$work/debootstrap.log"
    rm -rf "$work"/debian/var/cache/apt/archives/*.deb
    tar -C "$work/debian" -c . | docker import - "$1" >/dev/null
    rm -rf "$work/debian"
}

# With the certificates of this machine, which may be what the network needs.
make_rust() {
    local context=$work/rust
    mkdir -p "$context"
    cp -aL /etc/ssl/certs/ca-certificates.crt "$context"
    cp -a "$(rustc --print sysroot)"/{bin,lib} "$context"
    build "$1" "$context" <<DOCKERFILE
FROM debian:bookworm-slim
RUN $apt update && $apt install gcc libc6-dev make && rm -rf /var/lib/apt/lists/*
COPY ca-certificates.crt /etc/ssl/certs/
COPY bin /usr/local/bin
COPY lib /usr/local/lib
ENV CARGO_HOME=/usr/local/cargo
DOCKERFILE
}

# What the image of that name does with the variables that we use; whatever PostgreSQL Debian has.
make_postgres() {
    build "$1" tests/compose <<DOCKERFILE
FROM debian:bookworm-slim
RUN $apt update && $apt install postgresql && rm -rf /var/lib/apt/lists/* \
    && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/ && install -d -o postgres -g postgres /var/lib/postgresql/data
COPY postgres-entrypoint.sh /
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
ENTRYPOINT ["/bin/bash", "/postgres-entrypoint.sh"]
DOCKERFILE
}

build() {
    local image=$1 context=$2
    cat >"$work/Dockerfile"
    docker build --quiet --network host --tag "$image" --file "$work/Dockerfile" "$context" >/dev/null
}
