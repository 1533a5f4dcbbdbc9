# A container with the tested versions, a compiler for the fast layers, and molecules:
#   docker build -t grass-gnn .
#   docker run --rm -v "$PWD:/work" grass-gnn train molecules.csv --target logS
#   docker run --rm -p 8000:8000 -v "$PWD:/work" grass-gnn serve runs/molecules --host 0.0.0.0 --port 8000
FROM python:3.11-slim

# g++ compiles the layers at first use; the other two draw molecules (RDKit).
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ libxrender1 libxext6 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY grass_gnn grass_gnn
# torch first, from the CPU index: the default build brings gigabytes of CUDA.
RUN pip install --no-cache-dir -c constraints.txt torch --extra-index-url https://download.pytorch.org/whl/cpu \
    && pip install --no-cache-dir -c constraints.txt '.[chem,parquet,tune,sklearn,serve]'

# The processor is only known when the container runs, so nothing is compiled in advance.
RUN useradd --create-home user && mkdir /work && chown user /work
USER user
WORKDIR /work
ENTRYPOINT ["grass-gnn"]
CMD ["--help"]
