#!/usr/bin/env bash
# Run quick tests with other versions of what hearsay needs, each in an environment of its own:
#   lowest   the lowest declared version of every direct dependency, on the lowest Python
#   newest   the newest versions, pre-releases included
#   pythons  the SDK on each other Python of the machine
# CONTRIBUTING.md says what is left out, and which failures count.
set -euo pipefail
cd "$(dirname "$0")/.."
FOLDER=.venv-versions
UV="$FOLDER/uv/bin/uv --quiet"

# What depends on the versions of others: numpy and numba; sqlite3, grpc and protobuf; typer.
LDP=(tests/ldp)
SDK=(tests/hearsay/plans/test_plan.py tests/hearsay/test_{aio,anchors,client,conformance,encoding,ledger,memo,person}.py
    tests/hearsay/test_{sdk_guide,sealed,sender,spend,split_records,store,tls,transport}.py)
PAGES=(tests/test_names.py tests/test_guides.py tests/test_readme.py::test_the_code_of_the_readme_runs_without_torch)
COMMAND=(tests/hearsay_server/test_help.py)

environment() { # NAME PYTHON EXTRA [OPTION...]
    local name=$1 python=$2 extra=$3
    shift 3
    $UV venv --clear --python "$python" "$FOLDER/$name"
    $UV pip install --python "$FOLDER/$name" "$@" --editable ".[$extra]"
}

tests() { # NAME FILE...
    local name=$1
    shift
    OMP_NUM_THREADS=1 "$FOLDER/$name/bin/python" -m pytest -q --numprocesses 3 --dist worksteal "$@"
}

quick() { # NAME
    tests "$1" -m "not slow and not long" "${LDP[@]}" "${SDK[@]}" "${COMMAND[@]}" &&
        tests "$1" -m "not long" "${PAGES[@]}"
}

if ! [ -x "$FOLDER/uv/bin/uv" ]; then
    "${PYTHON:-python3}" -m venv "$FOLDER/uv"
    "$FOLDER/uv/bin/pip" install --quiet --disable-pip-version-check uv
fi
case ${1-} in
lowest)
    lowest=$(command -v python3.11 || echo "${PYTHON:-python3}")  # of the lowest Python that is here
    environment lowest "$lowest" versions --resolution lowest-direct
    quick lowest
    ;;
newest)
    rm -f "$FOLDER/pre-releases"
    if environment newest "${PYTHON:-python3}" versions --prerelease allow && quick newest; then
        exit
    fi
    # A pre-release of others may be broken, and be mended before it is released: that is told, and
    # fails nothing. What fails with released versions fails here, too.
    tried=$($UV pip freeze --python "$FOLDER/newest" | grep -E '==[0-9.]+(a|b|rc|\.dev)[0-9]' || true)
    environment newest "${PYTHON:-python3}" versions
    quick newest
    # Some packages have pre-releases alone: those were there both times.
    grep --invert-match --fixed-strings --line-regexp --file <($UV pip freeze --python "$FOLDER/newest") \
        <<<"${tried:-what could not be installed}" >"$FOLDER/pre-releases" || true
    echo "warning: the quick tests pass with the newest releases, but not with these pre-releases:" \
        "$(tr '\n' ' ' <"$FOLDER/pre-releases")" >&2
    ;;
pythons)
    own=$("${PYTHON:-python3}" -c 'import sys; print("3.%d" % sys.version_info.minor)')
    found=()
    for version in 3.11 3.12 3.13 3.14; do
        [ "$version" != "$own" ] || continue
        for python in "python$version" ~/.pyenv/versions/"$version".*/bin/python; do
            if "$python" -c 'import sqlite3, ssl' 2>/dev/null; then
                found+=("$version")
                environment "$version" "$(command -v "$python")" server,sealed,analyst,keyring,test
                tests "$version" -m "not slow and not long" "${SDK[@]}"
                break
            fi
        done
    done
    [ ${#found[@]} -gt 0 ] || echo "no Python beside $own from 3.11 to 3.14 is on this machine" >&2
    ;;
*)
    echo "usage: tests/versions.sh lowest|newest|pythons" >&2
    exit 2
    ;;
esac
