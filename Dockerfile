# A container with the tested versions, a compiler for the fast layers, and molecules:
#   docker build -t grass-gnn .
#   docker run --rm -v "$PWD:/work" grass-gnn train molecules.csv --target logS
#   docker run --rm -p 127.0.0.1:8321:8321 -v "$PWD:/work" grass-gnn serve runs/molecules --host 0.0.0.0
# The container's user has id 1000. If yours is another, add: --user "$(id -u)" -e HOME=/tmp
FROM python:3.11-slim

# g++ compiles the layers at first use; RDKit needs the others.
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ libxrender1 libxext6 libexpat1 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY grass_gnn grass_gnn
# torch first, from the CPU index: the default build brings gigabytes of CUDA.
RUN pip install --no-cache-dir -c constraints.txt torch --extra-index-url https://download.pytorch.org/whl/cpu \
    && pip install --no-cache-dir -c constraints.txt '.[chem,parquet,excel,tune,serve]'

# The processor is only known when the container runs, so nothing is compiled in advance.
RUN useradd --create-home user && mkdir /work && chown user /work
USER user
WORKDIR /work
ENTRYPOINT ["grass-gnn"]
CMD ["--help"]
